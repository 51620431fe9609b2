package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// desk is a server of variants (xRFC TP2) that a test speaks for, at a core: it takes
// requests and hands over responses of either protocol.
type desk struct {
	t     testing.TB
	k     *core
	types *testTypes
	delta bool
	// asked is what the server was asked for.
	asked map[string]bool
	said  int
}

// overDesks runs a test over each protocol, in a bubble.
func overDesks(t *testing.T, features []string, f func(t *testing.T, d *desk)) {
	t.Helper()
	for _, variant := range []string{"SotW", "delta"} {
		t.Run(variant, func(t *testing.T) {
			bubble(t, func(t *testing.T) { f(t, newDesk(t, variant == "delta", features...)) })
		})
	}
}

func newDesk(t *testing.T, delta bool, features ...string) *desk {
	features = append([]string{"dynamic_parameter_constraints"}, features...)
	if delta {
		features = append(features, "delta")
	}
	k := newCoreWith(t, testutils.ServerFeatures(features...), testutils.Authority("auth", "", nil))
	return &desk{t: t, k: k, types: newTestTypes(), delta: delta, asked: make(map[string]bool)}
}

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

// watch starts a watch of a cluster.
func (d *desk) watch(name string, constraints ...string) (*ear, func()) {
	d.t.Helper()
	e := newEar(d.t)
	e.name = fmt.Sprint(name, constraints)
	return e, d.k.c.WatchLocator(d.types.clusters, name, choose(constraints...), e)
}

// watchBoth watches the cluster "a" twice, and takes the requests for that.
func (d *desk) watchBoth(first, second string) (*ear, *ear) {
	d.t.Helper()
	one, _ := d.watch("a", first)
	two, _ := d.watch("a", second)
	d.listens()
	return one, two
}

// hears takes the requests that are due and compares what is subscribed to by them,
// with a plus, and what is not any more, with a minus.
func (d *desk) hears(want ...string) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.listens()); diff != "" {
		d.t.Fatalf("changes of the subscriptions (-want +got):\n%s", diff)
	}
}

// listens takes the requests that are due and returns what they change.
func (d *desk) listens() (got []string) {
	d.t.Helper()
	for message := d.k.request(); message != nil; message = d.k.request() {
		if d.delta {
			got = append(got, d.hearDelta(message)...)
		} else {
			got = append(got, d.hearSotW(message)...)
		}
	}
	return got
}

func (d *desk) hearDelta(message []byte) (changes []string) {
	var m discoverypb.DeltaDiscoveryRequest
	d.unmarshal(message, &m)
	for _, l := range m.GetResourceLocatorsSubscribe() {
		d.asked[locatorText(l)] = true
		changes = append(changes, "+"+locatorText(l))
	}
	for _, l := range m.GetResourceLocatorsUnsubscribe() {
		if !d.asked[locatorText(l)] {
			d.t.Errorf("%s was unsubscribed from, of which the server does not know", locatorText(l))
		}
		delete(d.asked, locatorText(l))
		changes = append(changes, "-"+locatorText(l))
	}
	slices.Sort(changes)
	return changes
}

func (d *desk) hearSotW(message []byte) (changes []string) {
	var m discoverypb.DiscoveryRequest
	d.unmarshal(message, &m)
	now := make(map[string]bool)
	for _, l := range m.GetResourceLocators() {
		now[locatorText(l)] = true
	}
	for text := range now {
		if !d.asked[text] {
			changes = append(changes, "+"+text)
		}
	}
	for text := range d.asked {
		if !now[text] {
			changes = append(changes, "-"+text)
		}
	}
	d.asked = now
	slices.Sort(changes)
	return changes
}

func (d *desk) unmarshal(message []byte, m proto.Message) {
	d.t.Helper()
	xdstest.NoError(d.t, proto.Unmarshal(message, m))
}

// locatorText is what desks call a locator: its name, and its constraints if it has
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

// says hands over a response. Names that are gone are errors in SotW.
func (d *desk) says(parts ...func(*answer)) ads.Verdict {
	d.t.Helper()
	return d.k.push(d.response(parts...))
}

func (d *desk) response(parts ...func(*answer)) []byte {
	d.said++
	r := &answer{TypeUrl: d.types.clusters.TypeURL, SystemVersionInfo: fmt.Sprint(d.said), Nonce: fmt.Sprint("n", d.said)}
	for _, p := range parts {
		p(r)
	}
	if d.delta {
		return mustMarshal(d.t, r)
	}
	return mustMarshal(d.t, inSotW(d.t, r))
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

// breaks ends the stream and opens another.
func (d *desk) breaks() {
	d.k.channel.Ended(transport.ErrNoAnswer)
	d.k.channel.Opened()
	d.asked = make(map[string]bool)
}
