"""Facts and file layouts that the demo capture's node and windows share.

Layouts are those of rocprofv3 7.0, facts those of an 8x MI300X node; every id is invented.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

NODE = "demo-node"
TOOL = "rocprofv3 7.0.0"
XCDS = 8
COMPUTE_UNITS = 304
PCI = tuple(f"0000:{bus:02x}:00.0" for bus in (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5))
# The kernel driver numbers its nodes in another order than the bus does, and CPUs take the first two.
KFD_NODE = dict(zip(PCI, (4, 5, 2, 3, 8, 9, 6, 7), strict=True))
KFD_GPU_ID = {pci: 51_000 + 977 * node for pci, node in KFD_NODE.items()}
RENDER = {pci: 128 + 8 * i for i, pci in enumerate(PCI)}
US, MS = 1_000, 1_000_000


def _columns(text: str) -> list[str]:
    return text.split(",")


KERNEL_COLUMNS = _columns(
    "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,"
    "End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Workgroup_Size_X,"
    "Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
)
CALL_COLUMNS = _columns("Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp")
COPY_COLUMNS = _columns(
    "Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,End_Timestamp"
)
COUNTER_COLUMNS = _columns(
    "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Grid_Size,Kernel_Id,Kernel_Name,"
    "Workgroup_Size,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Counter_Name,"
    "Counter_Value,Start_Timestamp,End_Timestamp"
)
AGENT_COLUMNS = _columns(
    "Node_Id,Logical_Node_Id,Agent_Type,Cpu_Cores_Count,Simd_Count,Cpu_Core_Id_Base,Simd_Id_Base,"
    "Max_Waves_Per_Simd,Lds_Size_In_Kb,Gds_Size_In_Kb,Num_Gws,Wave_Front_Size,Num_Xcc,Cu_Count,Array_Count,"
    "Num_Shader_Banks,Simd_Arrays_Per_Engine,Cu_Per_Simd_Array,Simd_Per_Cu,Max_Slots_Scratch_Cu,"
    "Gfx_Target_Version,Vendor_Id,Device_Id,Location_Id,Domain,Drm_Render_Minor,Num_Sdma_Engines,"
    "Num_Sdma_Xgmi_Engines,Num_Sdma_Queues_Per_Engine,Num_Cp_Queues,Max_Engine_Clk_Ccompute,"
    "Max_Engine_Clk_Fcompute,Sdma_Fw_Version,Fw_Version,Capability,Cu_Per_Engine,Max_Waves_Per_Cu,Family_Id,"
    "Workgroup_Max_Size,Grid_Max_Size,Local_Mem_Size,Hive_Id,Gpu_Id,Workgroup_Max_Dim_X,Workgroup_Max_Dim_Y,"
    "Workgroup_Max_Dim_Z,Grid_Max_Dim_X,Grid_Max_Dim_Y,Grid_Max_Dim_Z,Name,Vendor_Name,Product_Name,Model_Name"
)


class Dice:
    """Numbers that look thrown and are the same on every machine and Python."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 2_654_435_761 % 2**32

    def throw(self, low: int, high: int) -> int:
        self._state = (1_664_525 * self._state + 1_013_904_223) % 2**32
        return low + (self._state >> 8) % (high - low + 1)


def agents() -> bytes:
    rows = []
    for cpu in (0, 1):
        row = dict.fromkeys(AGENT_COLUMNS, 0) | {"Node_Id": cpu, "Logical_Node_Id": cpu, "Agent_Type": "CPU"}
        row |= {"Cpu_Cores_Count": 96, "Cpu_Core_Id_Base": 96 * cpu, "Max_Engine_Clk_Ccompute": 2400}
        row |= {"Name": "Example 96-Core Processor", "Vendor_Name": "CPU"}
        row |= {"Product_Name": "Example 96-Core Processor", "Model_Name": ""}
        rows.append(row)
    for pci, node in sorted(KFD_NODE.items(), key=lambda item: item[1]):
        row = dict.fromkeys(AGENT_COLUMNS, 0) | {
            "Node_Id": node,
            "Logical_Node_Id": node,
            "Agent_Type": "GPU",
        }
        row |= {"Simd_Count": 4 * COMPUTE_UNITS, "Max_Waves_Per_Simd": 8, "Lds_Size_In_Kb": 64, "Num_Gws": 64}
        row |= {"Wave_Front_Size": 64, "Num_Xcc": XCDS, "Cu_Count": COMPUTE_UNITS, "Array_Count": 32}
        row |= {
            "Num_Shader_Banks": 32,
            "Simd_Arrays_Per_Engine": 1,
            "Cu_Per_Simd_Array": 10,
            "Simd_Per_Cu": 4,
        }
        row |= {
            "Max_Slots_Scratch_Cu": 32,
            "Gfx_Target_Version": 90402,
            "Vendor_Id": 4098,
            "Device_Id": 29857,
        }
        row |= {"Location_Id": location(pci), "Drm_Render_Minor": RENDER[pci], "Num_Sdma_Engines": 2}
        row |= {"Num_Sdma_Xgmi_Engines": 14, "Num_Sdma_Queues_Per_Engine": 8, "Num_Cp_Queues": 24}
        row |= {"Max_Engine_Clk_Ccompute": 2400, "Max_Engine_Clk_Fcompute": 2100, "Max_Waves_Per_Cu": 32}
        row |= {"Workgroup_Max_Size": 1024, "Gpu_Id": KFD_GPU_ID[pci], "Name": "gfx942", "Vendor_Name": "AMD"}
        row |= {"Product_Name": "AMD Instinct MI300X", "Model_Name": ""}
        rows.append(row)
    return csv(AGENT_COLUMNS, [list(row.values()) for row in rows])


def location(pci: str) -> int:
    """The bus address as the kernel driver packs it."""
    _, bus, rest = pci.split(":")
    device, function = rest.split(".")
    return int(bus, 16) << 8 | int(device, 16) << 3 | int(function)


def csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    # As the real writer does: every text in quotes, numbers bare (counter values are numbers).
    def cell(value: object, column: str) -> str:
        return f'"{value}"' if isinstance(value, str) and column != "Counter_Value" else str(value)

    lines = [",".join(f'"{c}"' for c in columns)]
    lines += [",".join(map(cell, row, columns)) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
