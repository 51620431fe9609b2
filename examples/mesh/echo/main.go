// Command echo is a backend for the walk through examples/mesh: a gRPC health
// service that says in a response header who it is, and whom the request was from.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:18051", "address to listen on")
	id := flag.String("id", "backend", "who to say that it is")
	flag.Parse()

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(introduce(*id)))
	healthpb.RegisterHealthServer(server, health.NewServer())
	fmt.Printf("%s listens on %s\n", *id, listener.Addr())
	log.Fatal(server.Serve(listener))
}

// introduce answers each RPC with the headers "backend" and "from".
func introduce(id string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		header := metadata.Pairs("backend", id)
		if in, ok := metadata.FromIncomingContext(ctx); ok {
			header["from"] = in.Get("x-from")
		}
		if err := grpc.SetHeader(ctx, header); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}
