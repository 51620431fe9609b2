package relay_test

import (
	"context"
	"log"
	"net"
	"os"
	"os/signal"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// A relay for a pod: all of its processes are one node for the control plane.
func Example() {
	cfg, err := bootstrap.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	r, err := relay.New(relay.Options{Bootstrap: cfg, OneGroup: true})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	r.Register(server)
	listener, err := net.Listen("unix", "/run/xds/relay.sock")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, func() {
		r.Close() // ends the streams, so that clients go elsewhere
		server.GracefulStop()
	})
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
