package relay_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func TestParseFold(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"all-but-id", "none", "everything", "node.cluster", "node.id,node.locality,node.metadata.APP", "node.metadata", "node.metadata.a.b"} {
		f, err := relay.ParseFold(text)
		if err != nil || f.String() != text {
			t.Errorf("%q: got %v, %v", text, f, err)
		}
	}
	for text, want := range map[string]string{
		"":                                "a field is empty",
		"node.cluster,":                   "a field is empty",
		"none,node.id":                    `"none" cannot be combined`,
		"node.cluster,node.cluster":       "duplicate",
		"cluster":                         "not a field of a node",
		"node.metadata.":                  "needs a key",
		"node.metadata.A,node.metadata":   "has all keys",
		"node.client_features":            "known are node.id",
		"node.cluster,node.nothing,other": "node.nothing",
	} {
		if _, err := relay.ParseFold(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		}
	}
}

// What would break at the first client is refused when the relay is made.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	nameless, err := bootstrap.Parse("test", testutils.Bootstrap("", "127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	for want, opts := range map[string]relay.Options{
		"needs a bootstrap": {},
		"node.id":           {Bootstrap: nameless},
		"MaxGroups":         {Bootstrap: nameless.WithNode(node("a")), MaxGroups: -1},
	} {
		if r, err := relay.New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %q in it", r, err, want)
		}
	}
}
