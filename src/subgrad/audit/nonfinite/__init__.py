"""Which line of a run makes its gradients infinite or NaN, and what to write instead.

===============  =====================================================================================
`result`         what is found, as frozen data
`watched`        the operators whose calls are noted, and how a call tells that its slope is infinite
`forward`        a watch that notes lines, and sees steps coming that are to be recorded
`walks`          what backward did at each node of a graph
`entries`        one entry of what an operator took and gave
`tracing`        from a recorded walk to the line, the mask and where infinity became NaN
`advice`         what to write instead
`leaves`         which gradients a backward fills, and whether they are finite
`armed`          the watch of a session
`explaining`     `explain_nan`, for one batch
===============  =====================================================================================
"""
