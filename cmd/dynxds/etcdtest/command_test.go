package etcdtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
)

// commandFor returns a function that runs the command with a store.
func commandFor(t *testing.T, etcd *cluster) func(args ...string) (stdout, stderr string, status int) {
	return func(args ...string) (string, string, int) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), command, args...)
		cmd.Env = append(cmd.Environ(), "DYNXDS_STORE="+etcd.options("/"+t.Name()).URL, "USER=ada")
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
}

// The commands, one after the other, as an operator types them.
func TestCommands(t *testing.T) {
	t.Parallel()
	etcd := newCluster(t, 1)
	m := newWriter(t, etcd)
	dynxds := commandFor(t, etcd)
	exported := filepath.Join(t.TempDir(), "exported")
	write := func(files map[string]string) { m.folder(files) }
	a, b := service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")
	canary := `kind: MeshHTTPRoute
metadata: {name: canary}
spec:
  targetRef: {kind: MeshServiceSubset, name: a, tags: {version: v2}}
  to:
  - targetRef: {kind: MeshService, name: b}
    rules:
    - matches: [{path: {type: Exact, value: /s/m}}]
      backendRefs: [{kind: MeshService, name: a}]
`
	denied := "clients with {service=a,version=v2}\n    + route path \"/s/m\": to \"a\"\n"
	for _, step := range []struct {
		name  string
		files map[string]string
		args  string
		// stdout and stderr are parts of what is printed.
		stdout, stderr string
		status         int
	}{
		{"no history", nil, "history", "no revisions yet", "", 0},
		{"diff of all", map[string]string{"a.yaml": a, "b.yaml": b}, "diff DIR", "+ document a.yaml\n+ document b.yaml\n+ Listener a: all clients\n", "", 1},
		{"a dry run", nil, "apply DIR --dry-run", "+ Listener a: all clients", "", 0},
		{"still nothing there", nil, "get", "", "", 0},
		{"apply", nil, "apply DIR -m first --author eve@host", "written as revision 1", "", 0},
		{"no diff", nil, "diff DIR", "no changes", "", 0},
		{"apply again", nil, "apply DIR", "no changes", "", 0},
		{"a canary", map[string]string{"canary.yaml": canary}, "diff DIR", denied, "", 1},
		{"apply the canary", nil, "apply DIR -o json", `"revision": 2`, "", 0},
		{"a comment", map[string]string{"a.yaml": a + "# more\n"}, "apply DIR", "~ document a.yaml\nno client is affected\nwritten as revision 3\n", "", 0},
		{"a fault", map[string]string{"a.yaml": "kind: Servce\n"}, "apply DIR", "", "/a.yaml:1: kind: unknown value", 1},
		{"diff of a fault", nil, "diff DIR", "", "/a.yaml:1: kind: unknown value", 1},
		{"one document", nil, "get b.yaml", b, "", 0},
		{"all documents", nil, "get", "# a.yaml\n" + a + "# more\n---\n# b.yaml\n" + b + "---\n# canary.yaml\n", "", 0},
		{"no such document", nil, "get c.yaml", "", "no document c.yaml; it has 3: a.yaml, b.yaml, canary.yaml", 1},
		{"a path", nil, "get ../b.yaml", "", `"../b.yaml" is not a valid document name`, 2},
		{"documents as a folder", nil, "get --dir " + exported, "", "", 0},
		{"which is the same", nil, "diff " + exported + " --prune", "no changes", "", 0},
		{"some into that folder", nil, "get a.yaml --dir " + exported, "", "has b.yaml, which is not one of these documents", 1},
		{"prune", map[string]string{"a.yaml": a, "b.yaml": b}, "apply DIR --prune", "- document canary.yaml\n~ RouteConfiguration b: " + strings.ReplaceAll(denied, "+", "-") + "written as revision 4", "", 0},
		{"rollback", nil, "rollback 2", "+ document canary.yaml\n~ RouteConfiguration b: " + denied + "written as revision 5\n", "", 0},
		{"a revision", nil, "history 5", ": rollback 2\n+ document canary.yaml\n    + kind: MeshHTTPRoute\n", "", 0},
		{"a revision with a comment", nil, "history 3", "~ document a.yaml\n    …\n      name: a\n      endpoints: [{address: '10.0.0.1:80'}]\n    + # more\n", "", 0},
		{"rollback to nowhere", nil, "rollback 9", "", "the last one is 5", 1},
		{"rollback to no number", nil, "rollback HEAD", "", `"HEAD" is not the number of a revision`, 2},
		{"history", nil, "history", "  eve@host  ", "", 0},
		{"a large withdrawal", map[string]string{"a.yaml": a}, "diff DIR --prune", "note: this would withdraw 1 of 2 services (b)", "", 1},
		{"it is not applied", nil, "apply DIR --prune", "- document b.yaml", "nothing was written: this would withdraw 1 of 2 services (b), more than a third; to confirm, add --withdraw", 1},
		{"unless it is meant", nil, "apply DIR --prune --withdraw", "written as revision 6", "", 0},
		{"no folder", nil, "diff", "", "want one argument", 2},
		{"no such flag", nil, "diff DIR --force", "", "unknown flag: --force", 2},
		{"no store", nil, "diff DIR --store=", "", "which store?", 2},
	} {
		if step.files != nil {
			write(step.files)
		}
		args := strings.Fields(strings.ReplaceAll(step.args, "DIR", m.dir))
		stdout, stderr, status := dynxds(args...)
		if status != step.status || !strings.Contains(stdout, step.stdout) || !strings.Contains(stderr, step.stderr) || step.stderr == "" && stderr != "" {
			t.Errorf("%s: %q exits with %d, want %d with %q and %q; it prints\n%s%s", step.name, step.args, status, step.status, step.stdout, step.stderr, stdout, stderr)
		}
	}

	stdout, _, _ := dynxds("history", "2", "-o", "json")
	var entry struct {
		Number    int64
		Author    string
		Documents []struct{ Op, Name string }
		Edits     []struct{ After string }
		Changes   []meshdiff.Change
	}
	if err := json.Unmarshal([]byte(stdout), &entry); err != nil {
		t.Fatalf("%v in\n%s", err, stdout)
	}
	if entry.Number != 2 || !strings.Contains(entry.Author, "@") || len(entry.Documents) != 1 || entry.Edits[0].After != canary ||
		len(entry.Changes) != 1 || entry.Changes[0].Clients[0].Tags["version"] != "v2" {
		t.Errorf("revision 2 is %+v", entry)
	}
}

// What is applied is served by replicas that run.
func TestApplyReachesReplicas(t *testing.T) {
	t.Parallel()
	etcd := newCluster(t, 1)
	running := newReplica(t, etcd)
	dynxds := commandFor(t, etcd)
	if stdout, stderr, status := dynxds("apply", "../../../examples/mesh/config", "--store", etcd.options(prefix).URL); status != 0 {
		t.Fatalf("apply exits with %d: %s%s", status, stdout, stderr)
	}
	running.logged("msg=published", "services=2")
}

// Names of documents, and what is in them, reach a terminal only in a visible form, and add no lines.
func TestHostileDocuments(t *testing.T) {
	t.Parallel()
	etcd := newCluster(t, 1)
	m := newWriter(t, etcd)
	dynxds := commandFor(t, etcd)
	const nasty = "x\x1b[2J\u009b2J\u202e\r\nFORGED\x07.yaml"
	text := "# 2J \u202e\u200b\n" + service("a", "10.0.0.1:80")
	exported := filepath.Join(t.TempDir(), "exported")
	for _, step := range []struct {
		text string
		args []string
	}{
		{text, []string{"diff", m.dir}},
		{"", []string{"apply", m.dir, "-m", nasty, "--author", nasty}},
		{"", []string{"get"}},
		{"", []string{"get", nasty}},
		{"", []string{"get", nasty + "2.yaml"}},
		{"", []string{"get", "--dir", exported}},
		{"", []string{"history"}},
		{"", []string{"history", "1"}},
		{"", []string{"history", "1", "-o", "json"}},
		{strings.Replace(text, "name", "nme", 1), []string{"diff", m.dir}},
		{"", []string{"apply", m.dir}},
		{service("b", "10.0.0.1:80"), []string{"apply", m.dir, "--prune", "--withdraw"}},
		{"", []string{"rollback", "1", "--withdraw"}},
	} {
		if step.text != "" {
			m.folder(map[string]string{nasty: step.text})
		}
		stdout, stderr, _ := dynxds(step.args...)
		for i, c := range stdout + stderr {
			if c != '\n' && c != '\t' && !unicode.IsPrint(c) {
				t.Errorf("%q prints %U at byte %d: %q", step.args, c, i, stdout+stderr)
				break
			}
		}
		if strings.Contains("\n"+stdout+stderr, "\nFORGED") {
			t.Errorf("%q prints a line of the name:\n%s%s", step.args, stdout, stderr)
		}
		if step.args[len(step.args)-1] != exported && !strings.Contains(stdout+stderr, `2J`) {
			t.Errorf("%q does not print what is tested:\n%s%s", step.args, stdout, stderr)
		}
	}
	if data, err := os.ReadFile(filepath.Join(exported, nasty)); err != nil || string(data) != text {
		t.Errorf("get --dir wrote %q, %v; want each byte as it is", data, err)
	}
}
