package csds_test

import (
	"fmt"
	"net"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/observe/csds"
)

// A server for administrators, on an address that only they can reach. Then, for
// example:
//
//	grpcdebug localhost:50051 xds status
func ExampleRegister() {
	server := grpc.NewServer()
	if err := csds.Register(server); err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "localhost:50051")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(server.Serve(listener))
}
