// Package matching finds the route of an RPC: by the method's path, its query, its
// headers and a fraction of RPCs (gRFC A28), the first route that fits. It knows no
// protos and no actions; package xdsresource makes its values of resources.
//
// A Table finds routes; a Domains finds virtual hosts. Both are immutable to the caller
// and safe for concurrent use. For the first 1,024 methods a Table remembers which routes
// can match the path. Later RPCs of such a method compare no path and run no regular
// expression on it, and routes that want a header to have one value are looked up by that
// value. Finding allocates only for a method that it has not seen before, or if it has to
// copy metadata, see RPC.Context.
package matching
