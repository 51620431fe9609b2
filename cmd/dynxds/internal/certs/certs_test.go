package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/certs"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// verify returns the leaf of a pair in files, which both sides of a connection accept.
func verify(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem"))
	xdstest.NoError(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	xdstest.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	return pair.Leaf
}

// The authority of a folder is made once, and signs what is added later.
func TestAuthorityOfAFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "certs")
	for _, name := range []string{"backend", "frontend", "backend"} {
		a, err := certs.Open(dir)
		xdstest.NoError(t, err)
		xdstest.NoError(t, a.Write(dir, "mesh", name))
	}
	for _, name := range []string{"backend", "frontend"} {
		leaf := verify(t, dir, name)
		if want := "spiffe://mesh/" + name; len(leaf.URIs) != 1 || leaf.URIs[0].String() != want {
			t.Errorf("the URIs are %v, want %s", leaf.URIs, want)
		}
		info, err := os.Stat(filepath.Join(dir, name+"-key.pem"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key's file is %v, %v, want one for its owner alone", info.Mode(), err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 6 {
		t.Errorf("the folder has %v, %v, want three certificates and their keys", entries, err)
	}
}

// No name of a service stands for a file that is not its own: the authority's key stays what it was.
func TestNamesThatAreFilesOfOthers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "certs")
	a, err := certs.Open(dir)
	xdstest.NoError(t, err)
	xdstest.NoError(t, a.Write(dir, "mesh", "backend"))
	files := func() map[string]string {
		texts := map[string]string{}
		entries, err := os.ReadDir(dir)
		xdstest.NoError(t, err)
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			xdstest.NoError(t, err)
			texts[e.Name()] = string(text)
		}
		return texts
	}
	before := files()
	for _, name := range []string{"ca", "CA", "ca-key", "Ca-Key", "backend-key", "-key"} {
		if err := a.Write(dir, "mesh", name); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
	xdstest.Equal(t, "files", before, files())
	_, err = certs.Open(dir)
	xdstest.NoError(t, err)
}

func TestFaultyFolders(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		spoil      func(t *testing.T, dir string)
	}{
		{"an authority without its key", "ca-key.pem", func(t *testing.T, dir string) {
			xdstest.NoError(t, os.Remove(filepath.Join(dir, "ca-key.pem")))
		}},
		{"a certificate that is no authority's", "not that of an authority; delete it for a new one", func(t *testing.T, dir string) {
			for from, to := range map[string]string{"a.pem": "ca.pem", "a-key.pem": "ca-key.pem"} {
				xdstest.NoError(t, os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)))
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a, err := certs.Open(dir)
			xdstest.NoError(t, err)
			xdstest.NoError(t, a.Write(dir, "mesh", "a"))
			test.spoil(t, dir)
			_, err = certs.Open(dir)
			cmdtest.ErrorHas(t, "Open", err, test.want)
		})
	}
}
