import socket
import sys
import urllib.request

name, port, mode = sys.argv[1:]
found = sorted({a[4][0] for a in socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM)})
for address in found:
    with socket.create_connection((address, int(port)), timeout=10):
        pass
    if mode == "read":
        host = f"[{address}]" if ":" in address else address
        page = urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10).read().decode()
        lines = [line for line in page.splitlines() if line.startswith("amdgpu_devices")]
        if not lines:
            sys.exit(f"{address}: its page has no amdgpu_devices")
        print(address, lines[0])
print(f"{len(found)} pods answer")
