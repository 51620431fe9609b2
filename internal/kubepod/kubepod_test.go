package kubepod_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/kubepod"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// inPod has the environment of a pod, with files that exist.
func inPod(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	env := map[string]string{
		"POD_NAME": "frontend-1", "POD_NAMESPACE": "shop", "NODE_NAME": "node-1",
		"DYNXDS_TOKEN_FILE": filepath.Join(dir, "token"), "DYNXDS_CA_FILE": filepath.Join(dir, "ca.crt"),
	}
	for _, name := range []string{"DYNXDS_TOKEN_FILE", "DYNXDS_CA_FILE"} {
		xdstest.NoError(t, os.WriteFile(env[name], []byte("x"), 0o600))
	}
	return env
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	env := inPod(t)
	var pod kubepod.Pod
	xdstest.NoError(t, pod.Complete(func(name string) string { return env[name] }))
	text, err := pod.Bootstrap()
	xdstest.NoError(t, err)
	want := `{
  "xds_servers": [
    {
      "server_uri": "dynxds.dynxds-system.svc:18000",
      "channel_creds": [
        {
          "type": "tls",
          "config": {
            "ca_certificate_file": "CA"
          }
        }
      ],
      "call_creds": [
        {
          "type": "jwt_token_file",
          "config": {
            "jwt_token_file": "TOKEN"
          }
        }
      ],
      "server_features": [
        "delta",
        "resource_timer_is_transient_error"
      ]
    }
  ],
  "node": {
    "id": "frontend-1.shop",
    "locality": {},
    "metadata": {
      "namespace": "shop",
      "node": "node-1"
    }
  }
}
`
	want = strings.NewReplacer(`"CA"`, strconv.Quote(env["DYNXDS_CA_FILE"]), `"TOKEN"`, strconv.Quote(env["DYNXDS_TOKEN_FILE"])).Replace(want)
	xdstest.Equal(t, "the bootstrap", want, string(text))
}

// The error has everything that the pod lacks, with what to write into its manifest.
func TestPodWithoutWhatItNeeds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		missing string
		want    []string
	}{
		{"POD_NAME", []string{"POD_NAME", "fieldPath: metadata.name}"}},
		{"POD_NAMESPACE", []string{"POD_NAMESPACE", "fieldPath: metadata.namespace}"}},
		{"DYNXDS_TOKEN_FILE", []string{"the token of the service account", "serviceAccountToken: {path: token, audience: dynxds}"}},
		{"DYNXDS_CA_FILE", []string{"the authorities that certify the control plane", "configMap: {name: dynxds-ca}"}},
	} {
		xdstest.Parallel(t, test.missing, func(t *testing.T) {
			env := inPod(t)
			path := env[test.missing]
			isFile := filepath.IsAbs(path)
			if isFile {
				xdstest.NoError(t, os.Remove(path))
				test.want = append(test.want, path)
			} else {
				delete(env, test.missing)
			}
			err := new(kubepod.Pod).Complete(func(name string) string { return env[name] })
			if errors.Is(err, fs.ErrNotExist) != isFile {
				t.Errorf("got error %v, want one about a file: %t", err, isFile)
			}
			for _, text := range test.want {
				if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got error %v, want one line with %s", err, text)
				}
			}
		})
	}
	err := new(kubepod.Pod).Complete(func(string) string { return "" })
	for _, text := range []string{"POD_NAME:", "POD_NAMESPACE", kubepod.Token, kubepod.CA} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("outside of a pod the error is %v, want one with %s", err, text)
		}
	}
}
