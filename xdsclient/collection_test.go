package xdsclient

import (
	"fmt"
	"strings"
	"testing"
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

// What a server has in a collection is reported before the collection as a whole, however long the work on
// the response takes: a layer above that moves to other constraints removes then what was not reported.
func TestMembersComeBeforeTheirCollection(t *testing.T) {
	(&transcriptTest{over: "delta", steps: "works 1s\nwatch c=dir/* -> stream; req +dir/*", then: func(x *transcript) {
		const n = 100
		words := []string{"send", "1"}
		for i := range n {
			words = append(words, fmt.Sprintf("dir/%d=x", i))
		}
		x.do(x.c, strings.Join(words, " "))
		calls := x.watches["c"].collection.calls
		for i := range n {
			if got := <-calls; !strings.HasPrefix(got, "member ") {
				t.Fatalf("call %d of %d is %q", i, n, got)
			}
		}
		x.run("wait 0s -> ack 1; c collection")
	}}).run(t)
}
