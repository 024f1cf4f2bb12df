"""Whether a change helped: windows of before against windows of after."""
