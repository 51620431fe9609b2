package relay_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

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
