package xdsclient

import (
	"strings"
	"testing"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
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
