package grpcbridge

import "google.golang.org/grpc"

// Known reports whether there is a Channel for cc.
func Known(cc *grpc.ClientConn) bool { return lookup(cc) != nil }
