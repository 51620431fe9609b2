package grpcbridge

import (
	"encoding/json"
	"fmt"
	"sync"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/weightedtarget"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// weightedTarget is gRPC's policy weighted_target, which dynxds links. Its parser takes a target without a child policy, with which
// the policy panics (gRPC-Go 1.85): a Cluster, or a service config in DNS, could end the process.
type weightedTarget struct{ balancer.Builder }

var strictWeightedTarget = weightedTarget{balancer.Get(weightedtarget.Name)}

func init() { balancer.Register(strictWeightedTarget) }

// ParseConfig implements balancer.ConfigParser.
func (w weightedTarget) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	config, err := w.Builder.(balancer.ConfigParser).ParseConfig(text)
	if err != nil {
		return nil, err
	}
	for name, target := range config.(*weightedtarget.LBConfig).Targets {
		if target.ChildPolicy == nil {
			return nil, fmt.Errorf(`target %q has no childPolicy; set one, such as [{"round_robin": {}}]`, name)
		}
	}
	return config, nil
}

// WithLocality returns attributes for the resolver.State of a policy that has the endpoints of one
// locality. The policy's metrics get the locality as their label grpc.lb.locality (gRFC A78,
// "Optional xDS Locality Label"). The attributes include those given, which may be nil.
//
// Only gRPC's policy weighted_target can write what weightedtarget.LocalityFromResolverState
// reads. So such a policy is run with the locality as its one target, and a child that captures
// the attributes. If a future gRPC does this in another way, the attributes are returned as they are.
func WithLocality(a *attributes.Attributes, locality string) *attributes.Attributes {
	with := attributesOfTarget(a, locality)
	if weightedtarget.LocalityFromResolverState(resolver.State{Attributes: with}) != locality {
		warnOfLocality()
		return a
	}
	return with
}

var warnOfLocality = sync.OnceFunc(func() {
	logger.Warningf("gRPC passes the locality to policies in a way that dynxds does not know: " +
		"metrics of weighted_round_robin have no grpc.lb.locality.")
})

// attributesOfTarget returns the attributes that gRPC's weighted_target, given a, passes to the target
// of a name, or nil.
func attributesOfTarget(a *attributes.Attributes, target string) *attributes.Attributes {
	name, _ := json.Marshal(target) // of a text, which cannot fail
	config, _ := strictWeightedTarget.ParseConfig(fmt.Appendf(nil, `{"targets": {%s: {"weight": 1, "childPolicy": [{%q: {}}]}}}`, name, captureName))
	captured := new(captured)
	policy := strictWeightedTarget.Build(noChannel{}, balancer.BuildOptions{})
	defer policy.Close()
	_ = policy.UpdateClientConnState(balancer.ClientConnState{ // It has an error if config is nil.
		ResolverState:  resolver.State{Attributes: a.WithValue(capturedKey{}, captured)},
		BalancerConfig: config,
	})
	return captured.attributes
}

// noChannel is the channel of a policy that connects to nothing.
type noChannel struct{ balancer.ClientConn }

func (noChannel) UpdateState(balancer.State) {}

// captureName is the name of a policy that puts the attributes that it gets into the captured
// among them, and does nothing else.
const captureName = "dynxds_capture_experimental"

func init() { balancer.Register(captureBuilder{}) }

type capturedKey struct{}

type captured struct{ attributes *attributes.Attributes }

type captureBuilder struct{}

func (captureBuilder) Name() string { return captureName }

func (captureBuilder) Build(balancer.ClientConn, balancer.BuildOptions) balancer.Balancer {
	return capture{}
}

type capture struct{ balancer.Balancer }

func (capture) UpdateClientConnState(s balancer.ClientConnState) error {
	c, ok := s.ResolverState.Attributes.Value(capturedKey{}).(*captured)
	if !ok {
		return balancer.ErrBadResolverState
	}
	c.attributes = s.ResolverState.Attributes
	return nil
}

func (capture) ResolverError(error)                                        {}
func (capture) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}
func (capture) Close()                                                     {}
func (capture) ExitIdle()                                                  {}
