// Package matching finds the route of an RPC: by the method's path, its query, its
// headers and a fraction of RPCs (gRFC A28), the first route that fits. It knows no
// protos and no actions; package xdsresource makes its values of resources.
//
// A Table finds routes; a Domains finds virtual hosts. Both are immutable to the caller
// and safe for concurrent use. For the first 1,024 methods a Table remembers which routes
// the path leaves in question, so that later RPCs of such a method compare no path and
// run no regular expression on it, and find routes that ask for one value of a header by
// that value. Finding allocates only when it meets a method for the first time or copies
// metadata, see RPC.Context.
package matching
