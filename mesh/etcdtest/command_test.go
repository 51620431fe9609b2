package etcdtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// operator types commands, with a folder and a store.
type operator struct {
	*testing.T
	dir, store string
}

func newOperator(t *testing.T, c *cluster) *operator {
	return &operator{t, t.TempDir(), c.options(prefix).URL}
}

// folder makes the folder have just these files.
func (o *operator) folder(files set) {
	o.Helper()
	xdstest.NoError(o, os.RemoveAll(o.dir))
	xdstest.NoError(o, os.MkdirAll(o.dir, 0o700))
	for name, text := range files {
		cmdtest.Write(o, o.dir, name, text)
	}
}

// apply runs "dynxds apply" with the folder.
func (o *operator) apply(flags ...string) (stdout, stderr string, status int) {
	o.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(o.Context(), command, append([]string{"apply", o.dir}, flags...)...)
	cmd.Env = append(cmd.Environ(), "DYNXDS_STORE="+o.store)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		o.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// "dynxds apply", again and again, as an operator types it.
func TestApply(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	o, s := newOperator(t, c), c.open(prefix, 0)
	a, b, b2 := service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80"), service("b", "10.0.0.3:80")
	first := set{"a.yaml": a, "b.yaml": b}
	moved := `--- store: ClusterLoadAssignment b
+++ folder: ClusterLoadAssignment b
@@ -8,7 +8,7 @@
`
	rejected := "kind: Resource\nresource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, type: EDS}\n"
	for _, step := range []struct {
		name  string
		files set
		flags string
		// stdout and stderr are parts of what is printed, and has is what the store has then.
		stdout, stderr string
		status         int
		has            set
	}{
		{"a dry run of all", first, "--dry-run", "+ a.yaml\n+ b.yaml\n--- /dev/null\n+++ folder: Listener a\n", "", 0, set{}},
		{"all", first, "", "+ a.yaml\n+ b.yaml\nwritten: 2 files\n", "", 0, first},
		{"the same again", first, "", "no changes\n", "", 0, first},
		{"a dry run of the same", first, "--dry-run", "no changes\n", "", 0, first},
		{"a dry run of another address", set{"a.yaml": a, "b.yaml": b2}, "--dry-run", "~ b.yaml\n" + moved, "", 0, first},
		{"what the dry run says", set{"a.yaml": a, "b.yaml": b2}, "--dry-run", "\n-                address: 10.0.0.2\n+                address: 10.0.0.3\n", "", 0, first},
		{"a dry run of a comment", set{"a.yaml": a, "b.yaml": b + "# more\n"}, "--dry-run", "~ b.yaml\nno resource changes\n", "", 0, first},
		{"another address", set{"a.yaml": a, "b.yaml": b2}, "", "~ b.yaml\nwritten: 1 file\n", "", 0, set{"a.yaml": a, "b.yaml": b2}},
		{"a fault", set{"a.yaml": "kind: Servce\n"}, "", "", o.dir + "/a.yaml:1: kind: unknown value", 1, set{"a.yaml": a, "b.yaml": b2}},
		{"a dry run of a fault", set{"a.yaml": "kind: Servce\n"}, "--dry-run", "", o.dir + "/a.yaml:1: kind: unknown value", 1, set{"a.yaml": a, "b.yaml": b2}},
		{"files that contradict each other", set{"a.yaml": a, "b.yaml": a}, "", "", o.dir + "/b.yaml:1: duplicate service a", 1, set{"a.yaml": a, "b.yaml": b2}},
		{"what clients reject", set{"a.yaml": a, "c.yaml": rejected}, "", "", "eds_cluster_config", 1, set{"a.yaml": a, "b.yaml": b2}},
		{"nothing", nil, "", "", "has no documents", 1, set{"a.yaml": a, "b.yaml": b2}},
		{"a dry run of a large withdrawal", set{"a.yaml": a}, "--dry-run", "- b.yaml\nnote: this withdraws 1 of 2 services (b); replicas wait for their --withdrawal-delay", "", 0, set{"a.yaml": a, "b.yaml": b2}},
		{"a large withdrawal", set{"a.yaml": a}, "", "- b.yaml\nnote: this withdraws 1 of 2 services (b)", "", 0, set{"a.yaml": a}},
		{"no store", nil, "--store=", "", "which store?", 2, set{"a.yaml": a}},
	} {
		o.folder(step.files)
		stdout, stderr, status := o.apply(strings.Fields(step.flags)...)
		if status != step.status || !strings.Contains(stdout, step.stdout) || !strings.Contains(stderr, step.stderr) || step.stderr == "" && stderr != "" {
			t.Errorf("%s: exit status %d, want %d with %q and %q; it prints\n%s%s", step.name, status, step.status, step.stdout, step.stderr, stdout, stderr)
		}
		xdstest.Equal(t, step.name+": the store's documents", step.has, documentsOf(t, s))
	}

	// Faulty documents, which came by other means, do not hinder those who replace them.
	c.put(key("c.yaml"), "kind: Nonsense\n")
	o.folder(first)
	stdout, stderr, status := o.apply("--dry-run")
	if want := "note: the documents that the store has had have errors, and count as none: etcd:/mesh/docs/c.yaml:1: kind: unknown value"; status != 0 || !strings.Contains(stdout, want) {
		t.Errorf("a dry run over faulty documents: exit status %d, want 0 with %q:\n%s%s", status, want, stdout, stderr)
	}
	if stdout, stderr, status = o.apply(); status != 0 {
		t.Errorf("over faulty documents: exit status %d, want 0:\n%s%s", status, stdout, stderr)
	}
	xdstest.Equal(t, "the store's documents", first, documentsOf(t, s))
}

// What is applied is served by replicas that run, and have waited for it.
func TestApplyReachesReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	o := newOperator(t, c)
	o.dir = "../../examples/mesh/config"
	running := startReplica(t, c)
	running.logged("not ready", "the store etcd:/mesh/docs has no documents")
	if stdout, stderr, status := o.apply(); status != 0 {
		t.Fatalf("apply exits with %d: %s%s", status, stdout, stderr)
	}
	running.logged("msg=published", "services=2")
	running.logged("msg=serving")
}
