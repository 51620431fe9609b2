package etcdtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
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

// whole is the content of a resource that comes or goes.
var whole = regexp.MustCompile(`(?m)^@@ .*[-+]0,0.*\n([-+][^-+].*\n)*`)

// TestApply has what an operator types, one after the other: the flags of "dynxds apply", and the folder, NAME=DOCUMENT. Behind it are what is
// printed, the exit status, and what the store has then. "put" writes a document by other means.
func TestApply(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	o, s := newOperator(t, c), c.open(prefix, 0)
	texts := map[string]string{
		"a": service("a", "10.0.0.1:80"), "b": service("b", "10.0.0.2:80"), "b-elsewhere": service("b", "10.0.0.3:80"),
		"b-with-a-comment": service("b", "10.0.0.3:80") + "# more\n", "faulty": "kind: Servce\n",
		"rejected": "kind: Resource\nresource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, type: EDS}\n",
	}
	golden.Cases(t, "testdata/apply.txt", func(_, input string) string {
		files, flags := set{}, []string{}
		for _, word := range strings.Fields(input) {
			name, text, _ := strings.Cut(word, "=")
			if strings.HasPrefix(word, "--") {
				flags = append(flags, word)
			} else if strings.HasPrefix(input, "put ") && text != "" {
				c.put(key(name), texts[text])
			} else if text != "" {
				files[name] = texts[text]
			}
		}
		if strings.HasPrefix(input, "put ") {
			return ""
		}
		o.folder(files)
		stdout, stderr, status := o.apply(flags...)
		var has []string
		for name, text := range documentsOf(t, s) {
			for of, other := range texts {
				if text == other {
					has = append(has, name+"="+of)
				}
			}
		}
		slices.Sort(has)
		stdout = whole.ReplaceAllString(stdout, "")
		return strings.ReplaceAll(fmt.Sprintf("%s%sexit status %d; the store has: %s", stdout, stderr, status, strings.Join(has, " ")), o.dir, "DIR")
	})
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
