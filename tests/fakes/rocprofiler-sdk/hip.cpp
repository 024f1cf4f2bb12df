// As much of HIP as loads HSA.
extern "C" void fake_hip_is_loaded();
extern "C" int hipInit(unsigned) {
  fake_hip_is_loaded();
  return 0;
}
