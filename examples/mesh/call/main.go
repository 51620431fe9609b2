// Command call is a client for the walk through examples/mesh: it makes RPCs to a
// target, and counts who answered. All that it has of dynxds is the import, and, for --csds, one call.
// Its credentials leave TLS to the control plane, and are plaintext where that does not ask for TLS.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/xds"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	_ "github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/observe/csds"
)

func main() {
	target := flag.String("target", "xds:///backend", "target to dial")
	count := flag.Int("n", 200, "how many RPCs to make")
	status := flag.String("csds", "", "address at which to serve the Client Status Discovery Service afterwards")
	flag.Parse()
	creds, err := xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient(*target, grpc.WithTransportCredentials(creds))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answers, err := call(healthpb.NewHealthClient(conn), *count)
	for _, who := range slices.Sorted(maps.Keys(answers)) {
		fmt.Printf("%4d %s\n", answers[who], who)
	}
	if err == nil && *status != "" {
		err = serveStatus(*status)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serveStatus says what the process's xDS clients hold, until the process is killed.
func serveStatus(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	if err := csds.Register(server); err != nil {
		return err
	}
	return server.Serve(listener)
}

// call makes RPCs and counts who answered, until one fails.
func call(client healthpb.HealthClient, count int) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answers := map[string]int{}
	for range count {
		var header metadata.MD
		if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header)); err != nil {
			return answers, err
		}
		who := strings.Join(header.Get("backend"), ",")
		if from := header.Get("from"); len(from) > 0 {
			who += ", who was told that it is from " + strings.Join(from, ",")
		}
		if client := header.Get("verified"); len(client) > 0 {
			who += ", who has verified that it is from " + strings.Join(client, ",")
		}
		answers[who]++
	}
	return answers, nil
}
