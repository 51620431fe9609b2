// Package cluster is the content of a control plane that comes from Kubernetes: Services, EndpointSlices and routes, which
// informers of client-go keep in memory. It is for mesh/internal/site, beside a folder and a store.
//
// An event of an informer marks the Service that it concerns. Source.Read makes the services of the mesh that are marked, and
// leaves all others as they are: the same pointers, of which nothing is built again.
//
//	API server --watch--> informer --mark--> Source.Read --> site: publish --> clients
//
// It also says which namespaces are closed to clients of others. It is not for who clients are (package identity), nor does it write
// anything.
package cluster
