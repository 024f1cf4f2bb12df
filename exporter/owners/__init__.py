"""Who uses each GPU: pods by the kubelet, jobs by files of a scheduler, processes by their control groups."""
