// Command echo is a backend for the walk through examples/mesh: a gRPC health
// service that says in a response header who it is, and whom the request was from.
// With --cert it serves mTLS, and says which client it has verified.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:18051", "address to listen on")
	id := flag.String("id", "backend", "who to say that it is")
	cert := flag.String("cert", "", "PEM file with the backend's certificate; without it there is no TLS")
	key := flag.String("key", "", "PEM file with the key of the certificate")
	ca := flag.String("ca", "", "PEM file with the authorities that clients need a certificate of")
	flag.Parse()

	creds := insecure.NewCredentials()
	if *cert != "" {
		var err error
		if creds, err = mutualTLS(*cert, *key, *ca); err != nil {
			log.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(creds), grpc.UnaryInterceptor(introduce(*id)))
	healthpb.RegisterHealthServer(server, health.NewServer())
	fmt.Printf("%s listens on %s\n", *id, listener.Addr())
	log.Fatal(server.Serve(listener))
}

// mutualTLS accepts clients with a certificate of the authorities.
func mutualTLS(cert, key, ca string) (credentials.TransportCredentials, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s has no certificate", ca)
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}), nil
}

// introduce answers each RPC with the headers "backend", "from" and "verified".
func introduce(id string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		header := metadata.Pairs("backend", id)
		if in, ok := metadata.FromIncomingContext(ctx); ok {
			header["from"] = in.Get("x-from")
		}
		if p, ok := peer.FromContext(ctx); ok {
			if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && info.SPIFFEID != nil {
				header["verified"] = []string{info.SPIFFEID.String()}
			}
		}
		if err := grpc.SetHeader(ctx, header); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}
