// Package explain answers "why did, or would, my RPC go there?": over the resources that an xDS
// client holds it says which virtual host and route an RPC takes and why not the others, what its
// filters and the route do to it, and which clusters, priorities and endpoints it may go to.
//
// [InProcess] explains RPCs of a channel of the program itself:
//
//	e, err := explain.InProcess(ctx, explain.Request{
//		Target: "xds:///backend", Method: "/pkg.Service/Method", Headers: metadata.Pairs("x-user", "7"),
//	})
//	…
//	fmt.Print(e.Text())
//
// [Explain] is one function over the resources of a [Source], which is made from a folder, from the CSDS dump
// of any process, or from the clients of this process. Each cluster is described once, by its resources and by how the process says that it is.
// RPCs are matched by the code that
// routes them (package matching), over values that the client's own decoders made (package
// xdsresource), so that an explanation cannot disagree with the channel. The result is an
// [Explanation], a plain value for JSON.
//
// It opens no watch and sends no RPC, and nothing on the way of RPCs and updates knows it. It takes
// some milliseconds, and is for debugging.
package explain
