package site_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/testutils"
)

func named(name string) string {
	return fmt.Sprintf("kind: Service\nname: %s\nendpoints: [{address: '10.0.0.1:80'}]\n", name)
}

// A folder is deleted and filled again, file by file, as "rm -r mesh/*; cp new/* mesh/" does, and looked at between: no
// service is withdrawn, and the new folder counts as soon as it is complete.
func TestAFolderThatIsFilledAgainWithdrawsNothing(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	files := map[string]string{"services.yaml": m.services(), "a.yaml": named("a"), "b.yaml": named("b"), "c.yaml": named("c")}
	r := start(t, "", files, func(o *site.Options) { o.WithdrawalDelay = time.Hour })
	client := r.dial(plain, "frontend", "v1")
	client.reaches("v1")
	for _, name := range []string{"services.yaml", "a.yaml", "b.yaml"} {
		r.remove(name)
	}
	r.reload()
	r.logged("level=WARN", "more than a third of the services", "withdrawn=4", "of=5", "services=\"a, b, backend, shadow\"", "after=1h0m0s")
	client.reaches("v1")
	r.dial(plain, "batch", "v1").reaches("v1")
	r.write("services.yaml", m.services())
	r.write("a.yaml", named("a"))
	r.write("d.yaml", named("d"))
	r.reload()
	r.logged("the withdrawal that waited was replaced")
	r.logged("msg=published", "version=2", "files=4")
	client.reaches("v1")
}

// A change that withdraws more than a third of the services is published after the delay, though another service comes and goes
// all the time.
func TestALargeWithdrawalWaits(t *testing.T) {
	t.Parallel()
	stays := named("a") + "---\n" + named("y")
	all := stays + "---\n" + named("b") + "---\n" + named("c") + "---\n" + named("x")
	r := start(t, "", map[string]string{"all.yaml": all, "other.yaml": named("d")}, func(o *site.Options) { o.WithdrawalDelay = 300 * time.Millisecond })
	r.write("all.yaml", stays)
	r.reload()
	r.logged("level=WARN", "withdrawn=3", "of=6", "services=\"b, c, x\"")
	for ctx := testutils.Context(t); r.log.Count("withdrawing services") == 0; {
		for _, text := range []string{"", named("d")} {
			r.write("other.yaml", text)
			r.reload()
		}
		if ctx.Err() != nil {
			t.Fatalf("the withdrawal waits for ever:\n%s", r.log)
		}
	}
	r.write("other.yaml", named("d")+"---\n"+named("e"))
	r.reload()
	r.logged("msg=published", "services=4")
	if n := r.log.Count("the change may be incomplete"); n != 1 {
		t.Errorf("the log says %d times that a withdrawal waits, want once", n)
	}
}

// While a withdrawal waits, what is new is published beside what stays, unless the two conflict.
func TestOtherChangesDoNotWaitForAWithdrawal(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r := start(t, "", map[string]string{"services.yaml": m.services() + "---\n" + named("y"), "z.yaml": named("z")}, func(o *site.Options) { o.WithdrawalDelay = time.Hour })
	client := r.dial(plain, "frontend", "v1")
	client.reaches("v1")
	third := fmt.Sprintf("kind: Service\nname: third\nendpoints: [{address: %q}]\n", m.shadow.Addr())
	r.write("services.yaml", "kind: Resource\nresource: {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: backend}\n")
	r.reload()
	r.logged("level=WARN", "withdrawn=3", "of=4", "services=\"backend, shadow, y\"")
	r.write("services.yaml", third)
	r.reload()
	r.logged("msg=published", "version=2", "removed=0", "services=5")
	r.dialAs("third", plain, map[string]any{"service": "frontend"}).reaches("shadow")
	client.reaches("v1")
	r.dial(plain, "batch", "v1").reaches("v1")
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("the log has errors:\n%s", r.log)
	}
}
