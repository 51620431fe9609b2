//lint:file-ignore SA1019 What old policies call.

package balancer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpcattributes "google.golang.org/grpc/attributes"
	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/balancer/weight"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// old is a policy of the program's own as there were before endpoints: it has one connection to all its addresses, whose states it gets by
// UpdateSubConnState, and leaves that open in the end. While it is not connected, its RPCs fail with what it was given. It refuses an endpoint
// "bad", and one "poor" as well but goes on. A second after its end it is still busy.
type old struct {
	cc      grpcbalancer.ClientConn
	sc      grpcbalancer.SubConn
	updates int
	given   string
}

func init() { grpcbalancer.Register(oldBuilder{}) }

type oldBuilder struct{}

func (oldBuilder) Name() string { return "test_old" }

func (oldBuilder) Build(cc grpcbalancer.ClientConn, _ grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	return &old{cc: cc}
}

func (p *old) UpdateClientConnState(s grpcbalancer.ClientConnState) error {
	p.updates++
	var endpoints, addresses []string
	kinds := make(map[*grpcattributes.Attributes]bool)
	for _, e := range s.ResolverState.Endpoints {
		endpoints = append(endpoints, described(e))
		kinds[e.Attributes] = true
	}
	for _, a := range s.ResolverState.Addresses {
		addresses = append(addresses, described(grpcresolver.Endpoint{Addresses: []grpcresolver.Address{a}, Attributes: a.BalancerAttributes}))
	}
	p.given = fmt.Sprintf("update %d, %d kinds of endpoints %v, addresses %v", p.updates, len(kinds), endpoints, addresses)
	if strings.HasPrefix(endpoints[0], "bad") {
		return errors.New("one too many")
	}
	if p.sc != nil {
		p.cc.RemoveSubConn(p.sc)
	}
	var err error
	if p.sc, err = p.cc.NewSubConn(s.ResolverState.Addresses, grpcbalancer.NewSubConnOptions{}); err != nil {
		return err
	}
	p.sc.Connect()
	if strings.HasPrefix(endpoints[0], "poor") {
		p.UpdateSubConnState(p.sc, grpcbalancer.SubConnState{ConnectivityState: connectivity.Ready})
		return errors.New("one too many")
	}
	return nil
}

func (p *old) UpdateSubConnState(sc grpcbalancer.SubConn, s grpcbalancer.SubConnState) {
	picker := base.NewErrPicker(errors.New(p.given))
	if s.ConnectivityState == connectivity.Ready {
		picker = always{sc}
	}
	if sc == p.sc {
		p.cc.UpdateState(grpcbalancer.State{ConnectivityState: s.ConnectivityState, Picker: picker})
	}
}

func (p *old) ResolverError(error) {}

func (p *old) ExitIdle() { p.cc.ResolveNow(grpcresolver.ResolveNowOptions{}) }

func (p *old) Close() {
	time.AfterFunc(time.Second, func() {
		if _, err := p.cc.NewSubConn([]grpcresolver.Address{{Addr: "late:1"}}, grpcbalancer.NewSubConnOptions{}); err == nil {
			panic("a policy that is closed has a connection")
		}
		p.cc.UpdateState(grpcbalancer.State{ConnectivityState: connectivity.Connecting, Picker: base.NewErrPicker(errors.New("late"))})
	})
}

// always picks one connection.
type always struct{ grpcbalancer.SubConn }

func (p always) Pick(grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	return grpcbalancer.PickResult{SubConn: p.SubConn}, nil
}

// described returns the addresses, the weight and the version of an endpoint.
func described(e grpcresolver.Endpoint) string {
	var addrs []string
	for _, a := range e.Addresses {
		addrs = append(addrs, short(a.Addr))
	}
	version := xdsresource.MetadataOf(e).GetFilterMetadata()["envoy.lb"].GetFields()["version"].GetStringValue()
	return strings.TrimSpace(fmt.Sprintf("%s*%d %s", strings.Join(addrs, "+"), weight.FromEndpoint(e).Weight, version))
}

// versioned is metadata that has a version.
func versioned(t testing.TB, version string) string {
	wire, err := proto.Marshal(&corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"envoy.lb": {Fields: map[string]*structpb.Value{"version": structpb.NewStringValue(version)}},
	}})
	xdstest.NoError(t, err)
	return string(wire)
}
