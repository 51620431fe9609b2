package site_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
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

// To ask for a reading, once or twice, does not confirm it.
func TestASignalDoesNotConfirmAWithdrawal(t *testing.T) {
	t.Parallel()
	all := named("a") + "---\n" + named("b") + "---\n" + named("c")
	r := start(t, "", map[string]string{"all.yaml": all}, func(o *site.Options) { o.WithdrawalDelay = time.Hour })
	r.write("all.yaml", named("a"))
	for range 3 {
		r.reload()
	}
	r.logged("level=WARN", "withdrawn=2", "of=3", "services=\"b, c\"")
	r.write("all.yaml", all+"---\n"+named("d"))
	r.reload()
	r.logged("msg=published", "version=2", "services=4")
	if n := r.log.Count("withdrawing services"); n > 0 {
		t.Errorf("a signal has withdrawn services:\n%s", r.log)
	}
}

// A third is no reason to wait, nor is a folder that had nothing.
func TestASmallWithdrawalDoesNotWait(t *testing.T) {
	t.Parallel()
	r := start(t, "", map[string]string{"empty.yaml": "kind: Service\nname: empty\n"}, func(o *site.Options) { o.WithdrawalDelay = time.Hour })
	r.write("all.yaml", named("a")+"---\n"+named("b")+"---\n"+named("c"))
	r.write("empty.yaml", "")
	r.reload()
	r.logged("msg=published", "version=2", "services=3")
	r.write("all.yaml", named("a")+"---\n"+named("b"))
	r.reload()
	r.logged("msg=published", "version=3", "services=2")
}

func TestWithdrawn(t *testing.T) {
	t.Parallel()
	content := func(text string) *folder.Content {
		dir := t.TempDir()
		cmdtest.Write(t, dir, "a.yaml", text)
		c, err := folder.New(dir).Read()
		xdstest.NoError(t, err)
		return c
	}
	listener := "kind: Resource\nresource: {\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener, name: l, api_listener: {}}\n"
	empty := "kind: Service\nname: a\n"
	abc := named("a") + "---\n" + named("b") + "---\n" + named("c")
	for _, test := range []struct {
		before, after, want string
		large               bool
	}{
		{abc, abc, "0 of 3 services ()", false},
		{abc, named("c") + "---\n" + named("b") + "---\n" + named("d"), "1 of 3 services (a)", false},
		{abc, named("d") + "---\n" + named("e") + "---\n" + named("f"), "3 of 3 services (a, b, c)", false},
		{abc, named("a"), "2 of 3 services (b, c)", true},
		{named("a") + "---\n" + listener, named("a"), "1 of 2 services (l)", true},
		{named("a"), empty, "1 of 1 service (a)", true},
		{empty, "", "0 of 0 services ()", false},
	} {
		w := site.Withdrawn(content(test.before), content(test.after))
		if w.String() != test.want || w.IsLarge() != test.large {
			t.Errorf("from %q to %q: %s, large: %t; want %s, %t", test.before, test.after, w, w.IsLarge(), test.want, test.large)
		}
	}
}
