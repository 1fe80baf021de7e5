"""The only place that touches a private name of torch: one that begins with an underscore, or lies in such a module.

Each has a line that says what it is for. All were tried on torch 2.11 to 2.15, as `versions` says. A name that another
torch lacks raises where it is used, with the version in its message (`lookup`). `import subgrad` uses a few itself,
such as the base of our own autograd functions; it does not fail for want of any other.

============  ==========================================================================================
`autograd`    graphs and their nodes, backward, forward mode
`dispatcher`  dispatch keys, the kernels behind them, operators that torch itself calls
`tensors`     what a tensor, its memory or a module is
`transforms`  `torch.func`, trees of arguments, modes
`tracing`     what compiling leaves behind in a process that may not compile; cheap to import
`dynamo`      the compiler itself; takes a second to import, and is imported where something is compiled
`settings`    flags of torch that have no public setter, or one that does more
============  ==========================================================================================
"""
