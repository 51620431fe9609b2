package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// documents are contents of the words of a text: "a" is a service, "a0" one without endpoints, "policy:p" a policy and
// "Listener:l" a resource. Equal words are the same pointers; "a/2" is another version of a.
type documents map[string]any

func (d documents) content(text string) *folder.Content {
	c := &folder.Content{}
	for _, word := range strings.Fields(text) {
		name, _, _ := strings.Cut(word, "/")
		kind, named, isOther := strings.Cut(name, ":")
		if d[word] == nil {
			switch {
			case kind == "policy":
				d[word] = &meshroute.Policy{Name: named}
			case isOther:
				d[word] = &folder.Resource{Name: named, Any: &anypb.Any{TypeUrl: meshroute.ListenerType}}
			case strings.HasSuffix(name, "0"):
				d[word] = &meshroute.Service{Name: strings.TrimSuffix(name, "0")}
			default:
				d[word] = &meshroute.Service{Name: name, Endpoints: make([]meshroute.Endpoint, 1)}
			}
		}
		switch document := d[word].(type) {
		case *meshroute.Service:
			c.Services = append(c.Services, document)
		case *meshroute.Policy:
			c.Policies = append(c.Policies, document)
		case *folder.Resource:
			c.Resources = append(c.Resources, document)
		}
	}
	return c
}

func (d documents) words(c *folder.Content) string {
	if c == nil {
		return "nothing"
	}
	var words []string
	for word, document := range d {
		switch document := document.(type) {
		case *meshroute.Service:
			if slices.Contains(c.Services, document) {
				words = append(words, word)
			}
		case *meshroute.Policy:
			if slices.Contains(c.Policies, document) {
				words = append(words, word)
			}
		case *folder.Resource:
			if slices.Contains(c.Resources, document) {
				words = append(words, word)
			}
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	type look struct {
		at      int // in seconds
		desired string
		// publish is what is published, and withheld what is withdrawn later, "" for nothing.
		publish, withheld string
	}
	for _, test := range []struct {
		given, published string
		looks            []look
	}{
		{"a change that withdraws nothing", "a b c", []look{{0, "a/2 b c d", "a/2 b c d", ""}}},
		{"a third", "a b c", []look{{0, "a b", "a b", ""}}},
		{"a folder that had nothing that can be reached", "a0", []look{{0, "b", "b", ""}}},
		{"a service for another", "blue policy:p", []look{{0, "green policy:p/2", "green policy:p/2", ""}}},
		{"more than a third", "a b c", []look{
			{0, "a", "nothing", "b c"},
			{9, "a", "nothing", "b c"},
			{10, "a", "a", ""},
		}},
		{"half a change that is completed", "a b c", []look{
			{0, "a", "nothing", "b c"},
			{1, "a b/2", "a b/2", ""},
			{2, "a b/2 d", "a b/2 d", ""},
			{20, "a", "nothing", "b d"},
		}},
		{"what is new meanwhile", "a b c policy:p policy:q", []look{
			{0, "a", "nothing", "b c"},
			{1, "a/2 policy:p/2", "a/2 b c policy:p/2 policy:q", "b c"},
			{2, "a/2 policy:p/2", "nothing", "b c"},
			{10, "a/2 policy:p/2", "a/2 policy:p/2", ""},
		}},
		{"a service that comes and goes while others are gone", "a b c d e f flaps", []look{
			{0, "a b c flaps", "nothing", "d e f"},
			{4, "a b c", "nothing", "d e f flaps"},
			{8, "a b c flaps", "nothing", "d e f"},
			{12, "a b c", "a b c", ""},
			{16, "a b c flaps", "a b c flaps", ""},
		}},
		{"services that lose their endpoints, and Listeners", "a b c Listener:l", []look{
			{0, "a b0 c0", "nothing", "b c l"},
			{5, "a b0 c/2 Listener:l", "Listener:l a b0 c/2", ""},
			{6, "a b0 c0 Listener:l/2", "Listener:l/2 a b0 c0", ""},
		}},
		{"a service that never had endpoints", "a b c0", []look{{0, "a c0/2", "a b c0/2", "b"}}},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			d, begin := documents{}, time.Now()
			published := d.content(test.published)
			var held *withheld
			for _, look := range test.looks {
				var next *folder.Content
				next, held = decide(published, d.content(look.desired), held, begin.Add(time.Duration(look.at)*time.Second), 10*time.Second)
				want := fmt.Sprintf("published %s, withheld %s", look.publish, look.withheld)
				got := fmt.Sprintf("published %s, withheld ", d.words(next))
				if held != nil {
					got += strings.Join(held.Services, " ")
				}
				if got != want {
					t.Fatalf("after %d s: %s; want %s", look.at, got, want)
				}
				if next != nil {
					published = next
				}
			}
		})
	}
}
