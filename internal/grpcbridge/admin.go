package grpcbridge

import (
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
)

// The functions that gRPC's admin.Register calls (gRFC A38). A program that does not link package admin, or a future gRPC
// without the list, leaves it unused.
//
//go:linkname adminServices google.golang.org/grpc/internal/admin.services
var adminServices []func(grpc.ServiceRegistrar) (func(), error)

// AddAdminService makes gRPC's admin.Register call register too. It is for init functions. It does nothing on servers of a
// program that links gRPC-Go's own xds, which adds its CSDS to the same list: gRPC ends a process that registers a service twice.
func AddAdminService(register func(grpc.ServiceRegistrar) error) {
	adminServices = append(adminServices, func(s grpc.ServiceRegistrar) (func(), error) {
		if balancer.Get("cds_experimental") != nil { // which only gRPC-Go's own xds has
			return nil, nil
		}
		return nil, register(s)
	})
}
