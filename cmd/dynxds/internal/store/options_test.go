package store

import (
	"strings"
	"testing"
)

// No error shows a password that somebody put into the URL.
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
