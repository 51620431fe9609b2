package grpcbridge

import (
	"encoding/json"
	"errors"
	"sync"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/weightedtarget"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// WithLocality returns attributes for the resolver.State of a policy that has the endpoints of one
// locality. The policy's metrics get the locality as their label grpc.lb.locality (gRFC A78,
// "Optional xDS Locality Label"). The attributes include those given, which may be nil.
//
// gRPC lets only its policy weighted_target write what weightedtarget.LocalityFromResolverState
// reads. So such a policy is run with the locality as its one target, and its child looks at what
// it is told. If a future gRPC does this in another way, the attributes are returned as they are.
func WithLocality(a *attributes.Attributes, locality string) *attributes.Attributes {
	told := askWeightedTarget(a, locality)
	if weightedtarget.LocalityFromResolverState(resolver.State{Attributes: told}) != locality {
		withoutLocality()
		return a
	}
	return told
}

var withoutLocality = sync.OnceFunc(func() {
	logger.Warningf("gRPC tells policies their locality in a way that dynxds does not know: " +
		"metrics of weighted_round_robin have no grpc.lb.locality.")
})

// askWeightedTarget returns the attributes that gRPC's weighted_target, given a, tells the target
// of a name, or nil.
func askWeightedTarget(a *attributes.Attributes, target string) *attributes.Attributes {
	builder := balancer.Get(weightedtarget.Name)
	parser, ok := builder.(balancer.ConfigParser)
	if !ok {
		return nil
	}
	type targetConfig struct {
		Weight      int              `json:"weight"`
		ChildPolicy []map[string]any `json:"childPolicy"`
	}
	text, err := json.Marshal(map[string]any{"targets": map[string]targetConfig{
		target: {Weight: 1, ChildPolicy: []map[string]any{{listenerName: struct{}{}}}},
	}})
	if err != nil {
		return nil
	}
	config, err := parser.ParseConfig(text)
	if err != nil {
		return nil
	}
	heard := new(heard)
	policy := builder.Build(nobody{}, balancer.BuildOptions{})
	defer policy.Close()
	if policy.UpdateClientConnState(balancer.ClientConnState{
		ResolverState:  resolver.State{Attributes: a.WithValue(heardKey{}, heard)},
		BalancerConfig: config,
	}) != nil {
		return nil
	}
	return heard.attributes
}

// nobody is the channel of a policy that connects to nothing.
type nobody struct{ balancer.ClientConn }

func (nobody) UpdateState(balancer.State) {}

// listenerName is the name of a policy that only puts the attributes that it is told into the
// heard among them.
const listenerName = "dynxds_listener_experimental"

func init() { balancer.Register(listenerBuilder{}) }

type heardKey struct{}

type heard struct{ attributes *attributes.Attributes }

type listenerBuilder struct{}

func (listenerBuilder) Name() string { return listenerName }

func (listenerBuilder) Build(balancer.ClientConn, balancer.BuildOptions) balancer.Balancer {
	return listener{}
}

func (listenerBuilder) ParseConfig(json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return nil, nil
}

type listener struct{ balancer.Balancer }

var errListener = errors.New("policy " + listenerName + " is for dynxds only")

func (listener) UpdateClientConnState(s balancer.ClientConnState) error {
	h, ok := s.ResolverState.Attributes.Value(heardKey{}).(*heard)
	if !ok {
		return errListener
	}
	h.attributes = s.ResolverState.Attributes
	return nil
}

func (listener) ResolverError(error)                                        {}
func (listener) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}
func (listener) Close()                                                     {}
func (listener) ExitIdle()                                                  {}
