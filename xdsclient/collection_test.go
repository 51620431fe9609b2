package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/testutils"
)

const (
	collectionDir  = "xdstp://auth/envoy.config.cluster.v3.Cluster/dir/"
	collectionName = collectionDir + "*"
)

// collectionEar is a watcher of a collection that writes down what it hears.
type collectionEar struct {
	t     testing.TB
	calls chan string
	// keep holds the done callbacks if the test calls them.
	keep chan func()
}

func newCollectionEar(t testing.TB) *collectionEar {
	return &collectionEar{t: t, calls: make(chan string, 1000)}
}

func (e *collectionEar) hear(what, name string, value any, err error, done func()) {
	text := what
	if name != "" {
		text += " " + strings.TrimPrefix(name, collectionDir)
	}
	if fault := asError(e.t, err); fault != nil {
		text += ": " + string(fault.Kind)
	} else if c, ok := value.(interface{ GetAltStatName() string }); ok {
		text += " = " + c.GetAltStatName()
	}
	e.calls <- text
	if e.keep != nil {
		e.keep <- done
		return
	}
	done()
}

func (e *collectionEar) MemberChanged(m Member, value any, err error, done func()) {
	e.hear("member", memberText(m), value, err, done)
}

// memberText names a member, and which variant it is if there are any.
func memberText(m Member) string {
	if m.Parameters.IsZero() {
		return m.Name
	}
	return m.Name + m.Parameters.String()
}

func (e *collectionEar) CollectionChanged(err error, done func()) {
	e.hear("collection", "", nil, err, done)
}

func (e *collectionEar) AmbientError(m Member, err error, done func()) {
	e.hear("ambient", memberText(m), nil, err, done)
}

// heard checks what the watcher heard since the last time. The order of members
// does not matter, but that of the calls for one does.
func (e *collectionEar) heard(want ...string) {
	e.t.Helper()
	synctest.Wait()
	var got []string
	for len(e.calls) > 0 {
		got = append(got, <-e.calls)
	}
	byMember := func(a, b string) int {
		member := func(s string) string { _, name, _ := strings.Cut(s, " "); return strings.Trim(name, ":") }
		return strings.Compare(member(a), member(b))
	}
	slices.SortStableFunc(got, byMember)
	slices.SortStableFunc(want, byMember)
	if !slices.Equal(got, want) {
		e.t.Fatalf("the watcher heard %q, want %q", got, want)
	}
}

// collectionClient makes an incremental client with an authority "auth" on the
// server.
func (s *script) collectionClient(features ...string) *XDSClient {
	return s.client(testutils.ServerFeatures(append([]string{"delta"}, features...)...),
		testutils.Authority("auth", "", nil))
}

func watchCollection(t *testing.T, c Client, typ *ResourceType, name string) (*collectionEar, func()) {
	e := newCollectionEar(t)
	return e, c.WatchCollection(typ, name, e)
}

func member(name, version, text string) part {
	return has(collectionDir+name, version, cluster(collectionDir+name, text))
}

// A name is that of a collection or that of a resource.
func TestWatchOfTheOtherKind(t *testing.T) {
	overCollections(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		single, _ := listen(t, c, types.clusters, collectionName)
		if err := single.fault(KindConfiguration); !strings.Contains(err.Error(), "WatchCollection") {
			t.Errorf("got %v, want the way out", err)
		}
		for _, name := range []string{"a", "a/*", collectionDir + "a"} {
			e, stop := watchCollection(t, c, types.clusters, name)
			e.heard("collection: configuration")
			stop()
		}
		e, _ := watchCollection(t, c, types.clusters, "xdstp://unknown/T/*")
		e.heard("collection: configuration")
	})
}

// What a server has in a collection is reported before the collection as a whole, however long the work on
// the response takes: a layer above that moves to other constraints removes then what was not reported.
func TestMembersComeBeforeTheirCollection(t *testing.T) {
	const n = 3 * batchSize
	overCollections(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		decode := types.clusters.Decode
		types.clusters.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
			time.Sleep(time.Second) // watchers are called meanwhile
			return decode(a, o)
		}
		e, _ := watchCollection(t, c, types.clusters, collectionName)
		s := server.delta()
		s.request()
		var parts []part
		for i := range n {
			parts = append(parts, member(fmt.Sprint(i), "1", "x"))
		}
		s.send(types.clusters, "n1", parts...)
		s.request()
		for i := range n {
			if got := <-e.calls; !strings.HasPrefix(got, "member ") {
				t.Fatalf("call %d of %d is %q", i, n, got)
			}
		}
		e.heard("collection")
	})
}
