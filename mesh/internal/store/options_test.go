package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		xdstest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	password, nothing := file("password", "secret\r\nmore"), file("nothing", "\n")
	for _, test := range []struct {
		options   Options
		endpoints []string
		prefix    string
		err       string // part of it; empty: there is none
	}{
		{Options{URL: "etcd://a:1"}, []string{"http://a:1"}, "/dynxds", ""},
		{Options{URL: "etcd://a:1/"}, []string{"http://a:1"}, "/dynxds", ""},
		{Options{URL: "etcd://a:1,[::1]:2/mesh/"}, []string{"http://a:1", "http://[::1]:2"}, "/mesh", ""},
		{Options{URL: "etcds://a:1/my/mesh"}, []string{"https://a:1"}, "/my/mesh", ""},
		{Options{URL: "etcd://a:1", User: "u", PasswordFile: password}, []string{"http://a:1"}, "/dynxds", ""},
		{Options{URL: "http://a:1"}, nil, "", "want etcd://HOST:2379"},
		{Options{URL: ""}, nil, "", "want etcd://HOST:2379"},
		{Options{URL: "etcd://a/mesh"}, nil, "", `"a" is not HOST:PORT`},
		{Options{URL: "etcd://a:1,/mesh"}, nil, "", `"" is not HOST:PORT`},
		{Options{URL: "etcd://u:p@a:1/mesh"}, nil, "", "use --store-user"},
		{Options{URL: "etcd://a:1", Cert: password}, nil, "", "--store-cert and --store-key need each other"},
		{Options{URL: "etcd://a:1", Cert: password, Key: password}, nil, "", "--store-cert, --store-key: "},
		{Options{URL: "etcd://a:1", CA: password}, nil, "", "no PEM certificate in it"},
		{Options{URL: "etcd://a:1", CA: "no-such-file"}, nil, "", "--store-ca: open no-such-file"},
		{Options{URL: "etcd://a:1", PasswordFile: password}, nil, "", "--store-password-file needs --store-user"},
		{Options{URL: "etcd://a:1", User: "u", PasswordFile: nothing}, nil, "", "u has no password"},
		{Options{URL: "etcd://a:1", User: "u", PasswordFile: "no-such-file"}, nil, "", "--store-password-file: open no-such-file"},
	} {
		config, prefix, err := test.options.config()
		if test.err != "" {
			cmdtest.ErrorHas(t, fmt.Sprintf("%+v", test.options), err, test.err)
			if err != nil && strings.Contains(err.Error(), "u:p") {
				t.Errorf("the error %v has the password", err)
			}
			continue
		}
		if err != nil || prefix != test.prefix || !slices.Equal(config.Endpoints, test.endpoints) {
			t.Errorf("%+v: got %v and prefix %q, %v; want %v and %q", test.options, config.Endpoints, prefix, err, test.endpoints, test.prefix)
		}
		if config.Username != "" && config.Password != "secret" {
			t.Errorf("%+v: got password %q, want the first line of the file", test.options, config.Password)
		}
	}
}

// No error shows a password in the URL.
func TestPasswordInURL(t *testing.T) {
	for _, url := range []string{
		"etcd://root:secret@localhost:2379/mesh", "etcds://root:2/secret@localhost:2379/mesh", "http://root:secret@localhost:2379", "etcd3://root:secret@a",
	} {
		_, err := Open(Options{URL: url})
		if err == nil || !strings.Contains(err.Error(), "--store-password-file") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got error %v, want one that names --store-password-file, and not the password", url, err)
		}
	}
}
