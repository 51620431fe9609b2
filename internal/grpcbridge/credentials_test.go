//lint:file-ignore SA1019 What policies call.

package grpcbridge_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// securing is pick_first whose SubConns have a bundle.
type securing struct {
	balancer.Builder
	bundle credentials.Bundle
}

func (securing) Name() string { return "test_securing" }

func (s securing) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return s.Builder.Build(securingConn{cc, s.bundle}, opts)
}

type securingConn struct {
	balancer.ClientConn
	bundle credentials.Bundle
}

func (c securingConn) NewSubConn(addresses []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return c.ClientConn.NewSubConn(addresses, grpcbridge.WithCredentials(opts, c.bundle))
}

type tlsBundle struct {
	creds credentials.TransportCredentials
}

func (b tlsBundle) TransportCredentials() credentials.TransportCredentials { return b.creds }
func (tlsBundle) PerRPCCredentials() credentials.PerRPCCredentials         { return nil }
func (b tlsBundle) NewWithMode(string) (credentials.Bundle, error)         { return b, nil }

// A channel in plaintext whose SubConns have TLS sends nothing in plaintext. If a later gRPC
// ignores the field, this fails.
func TestSubConnsHaveCredentialsOfTheirOwn(t *testing.T) {
	ca := testca.New(t)
	backend := testutils.StartBackend(t, "b", grpc.Creds(credentials.NewTLS(ca.ServerConfig())))
	bundle := tlsBundle{credentials.NewTLS(ca.ClientConfig(true))}
	balancer.Register(securing{balancer.Get(pickfirst.Name), bundle})
	cc, err := grpc.NewClient("passthrough:///"+backend.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"test_securing":{}}]}`))
	xdstest.NoError(t, err)
	defer cc.Close()
	var p peer.Peer
	if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(testutils.Context(t), new(testgrpc.Empty), grpc.Peer(&p)); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.AuthInfo.(credentials.TLSInfo); !ok {
		t.Errorf("the peer is known by %T, want TLS", p.AuthInfo)
	}
}
