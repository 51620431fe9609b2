package xdsclient

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// TestModelOfVariantsEndToEnd has the model's client talk with a server over loopback: variants come, change, go and get errors in their place while watches
// start, move and stop and streams break. Whenever there is peace, each watch has what
// the oracle says.
func TestModelOfVariantsEndToEnd(t *testing.T) {
	for _, variant := range []string{"SotW", "SotW of a type without full state", "delta"} {
		for _, errors := range []bool{false, true} {
			for seed := range uint64(10) { // every other one over a link with latency
				xdstest.Parallel(t, fmt.Sprintf("%s, errors %t, seed %d", variant, errors, seed), func(t *testing.T) {
					newModelEndToEnd(t, variant, errors, seed).run()
				})
			}
		}
	}
}

// modelEndToEnd is a model over a real server.
type modelEndToEnd struct {
	*model
	server *xdstest.Server
	// changed has something when a watch was told something.
	changed chan struct{}
}

func newModelEndToEnd(t *testing.T, variant string, errors bool, seed uint64) *modelEndToEnd {
	t.Helper()
	// In SotW a variant of a type without full state goes by an error alone.
	r := rand.New(rand.NewPCG(seed, 11))
	opts := []testutils.FakeServerOption{testutils.NotFoundErrors()}
	if seed%2 == 1 {
		delay := func() time.Duration { return time.Duration(r.Int64N(int64(5 * time.Millisecond))) }
		opts = append(opts, testutils.OverLink(xdstest.SlowLink(delay(), delay())))
	}
	server := xdstest.StartServer(t, opts...)
	features := []string{"dynamic_parameter_constraints", "fail_on_data_errors"}
	if variant == "delta" {
		features = append(features, "delta")
	}
	c, err := New(parseBootstrap(t, server.Addr(), testutils.Authority("auth", "", nil), testutils.ServerFeatures(features...)), WithBackoff(quick))
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)
	e := &modelEndToEnd{server: server, changed: make(chan struct{}, 1)}
	e.model = &model{
		t: t, r: r, client: c, types: newTestTypes(), collections: variant == "delta", errors: errors,
		resources: modelResources(), world: make(map[string]map[string]worldVariant),
		heard: func() {
			select {
			case e.changed <- struct{}{}:
			default:
			}
		},
	}
	if variant == "SotW of a type without full state" {
		e.types.clusters = withoutFullState(e.types.clusters)
		e.resources = []string{"a", "b", "c"} // new-style names would have the other type in them
	}
	return e
}

// withoutFullState is a type of the same messages of which a SotW response need not
// have all there is. Its name is none that the server knows.
func withoutFullState(clusters *ResourceType) *ResourceType {
	t := *clusters
	t.TypeURL, t.FullStateInSotW = "type.googleapis.com/dynxds.test.Changes", false
	t.Decode = func(a *anypb.Any, opts DecodeOptions) (any, error) {
		return clusters.Decode(&anypb.Any{TypeUrl: clusters.TypeURL, Value: a.GetValue()}, opts)
	}
	return &t
}

func (e *modelEndToEnd) run() {
	for range 30 {
		for range 1 + e.r.IntN(6) {
			e.step()
			e.server.Update(e.t, e.publish)
		}
		if e.r.IntN(4) == 0 {
			e.note("the streams break")
			e.server.BreakStreams(errors.New("off for lunch"))
		}
		e.await()
	}
}

// publish makes the server have what the model has.
func (e *modelEndToEnd) publish(tx *testutils.Tx) {
	typeURL := e.types.clusters.TypeURL
	for _, name := range e.resources {
		tx.Delete(typeURL, name)
		for _, v := range e.world[name] {
			if v.denied {
				tx.SetVariantError(typeURL, name, v.parameters.Map(), status.New(codes.PermissionDenied, v.text))
				continue
			}
			a := pack(e.t, cluster(name, v.text))
			a.TypeUrl = typeURL
			tx.SetNamed(name, v.parameters.Map(), a)
		}
	}
}

// await waits until each watch has what it is to have.
func (e *modelEndToEnd) await() {
	e.t.Helper()
	deadline := time.After(30 * time.Second)
	for fault := e.difference(); fault != ""; fault = e.difference() {
		select {
		case <-e.changed:
		case <-deadline:
			e.t.Fatalf("%s, after\n%s", fault, strings.Join(e.steps, "\n"))
		}
	}
}
