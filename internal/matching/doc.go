// Package matching finds the route of an RPC: the first one whose conditions on path, query,
// headers and a fraction of RPCs hold (gRFC A28). It knows neither protos nor actions;
// package xdsresource makes its values from resources.
//
// A Table finds routes, a Domains virtual hosts. Both are immutable to the caller and safe
// for concurrent use. For up to 1,024 methods that are called now, a Table remembers which routes can match
// the path, so that later RPCs of the method compare no path and run no regular expression
// on it, and look up routes that require one value of a header by that value. Finding a
// route allocates only for a new method, or to copy metadata, see RPC.Context.
package matching
