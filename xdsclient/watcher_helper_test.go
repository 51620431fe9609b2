package xdsclient

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// testTypes are the resource types of one test.
type testTypes struct {
	// clusters have their full state in each SotW response, endpoints do not.
	clusters, endpoints *ResourceType
	// decoded counts the resources that were decoded.
	decoded atomic.Int64
}

func newTestTypes() *testTypes {
	types := &testTypes{}
	types.clusters = &ResourceType{
		TypeURL:         "type.googleapis.com/envoy.config.cluster.v3.Cluster",
		Name:            "Cluster",
		FullStateInSotW: true,
		Decode: func(a *anypb.Any, _ DecodeOptions) (any, error) {
			types.decoded.Add(1)
			return decodeCluster(a)
		},
	}
	types.endpoints = &ResourceType{
		TypeURL: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		Name:    "ClusterLoadAssignment",
		Decode: func(a *anypb.Any, _ DecodeOptions) (any, error) {
			types.decoded.Add(1)
			m := &endpointv3.ClusterLoadAssignment{}
			if err := a.UnmarshalTo(m); err != nil {
				return nil, err
			}
			return m, nil
		},
	}
	return types
}

// decodeCluster validates clusters by what their alt_stat_name asks for.
func decodeCluster(a *anypb.Any) (any, error) {
	m := &clusterv3.Cluster{}
	if err := a.UnmarshalTo(m); err != nil {
		return nil, err
	}
	switch fault, ok := strings.CutPrefix(m.GetAltStatName(), "bad: "); {
	case ok:
		return nil, errors.New(fault)
	case m.GetAltStatName() == "panic":
		panic("decoder out of order")
	case m.GetAltStatName() == "garbled":
		return nil, errors.New("it has \xff in it")
	case m.GetAltStatName() == "nothing":
		return nil, nil
	}
	return m, nil
}

// cluster makes a cluster whose content differs with text.
func cluster(name, text string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, AltStatName: text}
}

// badCluster makes a cluster that does not validate, for the given reason.
func badCluster(name, reason string) *clusterv3.Cluster { return cluster(name, "bad: "+reason) }

func endpoints(name string) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name}
}

// heard is one call to a watcher.
type heard struct {
	value   any
	err     *Error
	ambient bool
	done    func()
}

func (h heard) String() string {
	kind := "ResourceChanged"
	if h.ambient {
		kind = "AmbientError"
	}
	if h.err != nil {
		return fmt.Sprintf("%s(%v)", kind, h.err)
	}
	return fmt.Sprintf("%s(%v)", kind, h.value)
}

// ear is a watcher that writes down what it hears.
type ear struct {
	t testing.TB
	// name is that of the resource, for messages.
	name  string
	calls chan heard
	// keepDone says that the test calls done.
	keepDone bool
	// on, if not nil, is called within each call.
	on func(heard)
}

func newEar(t testing.TB) *ear { return &ear{t: t, calls: make(chan heard, 1000)} }

func (e *ear) ResourceChanged(value any, err error, done func()) {
	e.hear(heard{value: value, err: asError(e.t, err), done: done})
}

func (e *ear) AmbientError(err error, done func()) {
	e.hear(heard{err: asError(e.t, err), ambient: true, done: done})
}

func asError(t testing.TB, err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("a watcher got a %T, want an *Error", err)
	}
	return e
}

func (e *ear) hear(h heard) {
	if e.on != nil {
		e.on(h)
	}
	e.calls <- h
	if !e.keepDone {
		h.done()
	}
}

func (e *ear) fatalf(format string, args ...any) {
	e.t.Helper()
	e.t.Fatalf("the watcher of %q: "+format, append([]any{e.name}, args...)...)
}

// next waits for the next call.
func (e *ear) next() heard {
	e.t.Helper()
	select {
	case h := <-e.calls:
		return h
	case <-time.After(patience):
		e.fatalf("it was not called")
		return heard{}
	}
}

// listen starts a watch and returns its ear and its end.
func listen(t *testing.T, c LocatorClient, typ *ResourceType, name string) (*ear, func()) {
	t.Helper()
	e := newEar(t)
	e.name = name
	return e, c.WatchLocator(typ, name, dynparam.Constraints{}, e)
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	xdstest.NoError(t, err)
	return b
}
