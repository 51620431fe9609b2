// Package matching finds the route of an RPC: the first one whose conditions on path, query,
// headers and a fraction of RPCs hold (gRFC A28). It knows neither protos nor actions;
// package xdsresource makes its values from resources.
//
// A Table finds routes. It is immutable and safe for concurrent use. Finding a route allocates only to copy metadata, see RPC.Context.
package matching
