// Package status asks a process by the Client Status Discovery Service (gRFC A40) what its xDS clients
// hold, and how its channels are, if it is a process of dynxds. It prints the state of clusters and connections, the
// resources, and the fields of these that dynxds ignores, and it explains RPCs by them.
//
// It fetches once and does not watch. It works with any gRPC process that has the service.
package status
