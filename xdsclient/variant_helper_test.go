package xdsclient

import (
	"slices"
	"strings"
	"testing"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// choose makes constraints of texts like "env=prod", "env!=prod" and "shard=0-5".
func choose(texts ...string) dynparam.Constraints { return xdstest.Constraints(texts...) }

// parameters makes parameters of a text like "env=prod,v=1".
func parameters(text string) map[string]string {
	values := make(map[string]string)
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			values[key] = value
		}
	}
	return values
}

// locatorText is what tests call a locator: its name, and its constraints if it has
// any.
func locatorText(l *discoverypb.ResourceLocator) string {
	c, err := dynparam.FromProto(l.GetDynamicParameterConstraints())
	if err != nil {
		panic(err)
	}
	if c.IsZero() {
		return l.GetName()
	}
	return l.GetName() + c.String()
}

// answer is a response in the making, as a delta one, which has room for everything.
type answer = discoverypb.DeltaDiscoveryResponse

// variantOf sends a variant of a cluster. Its version is its text.
func variantOf(name, params, text string) func(*answer) {
	return variantWith(name, params, text, cluster(name, text))
}

func variantWith(name, params, version string, m proto.Message) func(*answer) {
	return func(r *answer) {
		a, err := anyOf(m)
		if err != nil {
			panic(err)
		}
		r.Resources = append(r.Resources, &discoverypb.Resource{Name: name, Version: version, Resource: a, DynamicParameters: parameters(params)})
	}
}

// gone says that there is nothing for a subscription to the name, or, without
// constraints, for none of them.
func gone(name string, constraints ...string) func(*answer) {
	return func(r *answer) {
		r.RemovedResourceNames = append(r.RemovedResourceNames, subscriptionName(name, constraints))
	}
}

// refuses sends an error to a subscription to the name, or, without constraints, to
// all of them.
func refuses(code codes.Code, name string, constraints ...string) func(*answer) {
	return func(r *answer) {
		r.ResourceErrors = append(r.ResourceErrors, &discoverypb.ResourceError{
			ResourceName: subscriptionName(name, constraints),
			ErrorDetail:  &statuspb.Status{Code: int32(code), Message: "the reason"},
		})
	}
}

func subscriptionName(name string, constraints []string) *discoverypb.ResourceName {
	m := &discoverypb.ResourceName{Name: name}
	if len(constraints) > 0 {
		m.DynamicParameterConstraints = choose(slices.DeleteFunc(constraints, func(s string) bool { return s == "" })...).ToProto()
	}
	return m
}

// inSotW says the same in the other protocol.
func inSotW(t testing.TB, r *answer) *discoverypb.DiscoveryResponse {
	m := &discoverypb.DiscoveryResponse{TypeUrl: r.TypeUrl, VersionInfo: r.SystemVersionInfo, Nonce: r.Nonce, ResourceErrors: r.ResourceErrors}
	for _, w := range r.Resources {
		m.Resources = append(m.Resources, &anypb.Any{TypeUrl: wrapperType, Value: mustMarshal(t, w)})
	}
	for _, n := range r.RemovedResourceNames {
		m.ResourceErrors = append(m.ResourceErrors, &discoverypb.ResourceError{
			ResourceName: n, ErrorDetail: &statuspb.Status{Code: int32(codes.NotFound), Message: "gone"},
		})
	}
	return m
}
