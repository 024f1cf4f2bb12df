#pragma once
extern "C" {
typedef enum { HSA_STATUS_SUCCESS = 0, HSA_STATUS_ERROR_OUT_OF_RESOURCES = 0x1008 } hsa_status_t;
hsa_status_t hsa_init(void);
hsa_status_t hsa_shut_down(void);
hsa_status_t hsa_status_string(hsa_status_t, const char**);
}
