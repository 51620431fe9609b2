package diskcache

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	cachepb "github.com/dynxds/dynxds/proto/dynxds/resource_cache/v1"
)

// TestScripts follows testdata/files.txt, which says what its lines are.
func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/files.txt", 0, func(t testing.TB) func(string) string {
		s := &script{t: t, dir: t.TempDir(), began: time.Now(), now: time.Now(), kept: make(map[string][]byte)}
		return func(line string) string { return strings.TrimSpace(s.step(line)) }
	})
}

type script struct {
	t          testing.TB
	dir        string
	began, now time.Time
	c          *Cache // of the last step that has read
	kept       map[string][]byte
}

func (s *script) step(line string) string {
	s.t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	if s.c == nil || verb == "load" || verb == "write" || verb == "refuse" { // as another process
		s.c = New(s.dir, fingerprint, time.Hour)
		s.c.Load(s.now)
	}
	switch verb {
	case "at":
		s.now = s.began.Add(s.duration(rest))
	case "dir":
		s.dir, s.c = filepath.Join(s.dir, strings.ReplaceAll(rest, "FILE", filepath.Base(s.c.Path()))), nil
	case "make":
		xdstest.NoError(s.t, s.c.MakeDir())
	case "load":
		return s.load()
	case "write", "again", "refuse":
		return s.write(words, verb == "refuse")
	case "keep":
		s.kept[rest] = s.content()
	case "back":
		s.put(s.kept[rest])
	case "edit":
		s.put([]byte(strings.Replace(string(s.content()), words[0], words[1], 1)))
	case "cut":
		n, b := s.number(rest), s.content()
		s.put(b[:(n+len(b))%len(b)])
	case "grow":
		s.put(append(s.content(), make([]byte, s.number(rest))...))
	case "sealed":
		s.put(s.sealed(words))
	case "pipe":
		xdstest.NoError(s.t, exec.Command("mkfifo", "-m", "600", s.c.Path()).Run())
	case "mark":
		xdstest.NoError(s.t, os.WriteFile(s.c.mark(), []byte(rest), 0o600))
	case "touch", "mkdir":
		s.make(verb == "mkdir", words[0], s.duration(words[1]))
	case "remove":
		xdstest.NoError(s.t, os.RemoveAll(s.path(rest)))
	case "crowd":
		for i := range maxFiles {
			s.make(false, fmt.Sprintf("dynxds-%04d", i), time.Duration(maxFiles-i)*time.Minute)
		}
	case "files":
		return s.files()
	default:
		s.t.Fatalf("unknown step %q", line)
	}
	return ""
}

// resource returns what a word such as "-a@-1h*1000+tls" says: something refused, current an hour ago, of so many bytes, which asks for TLS.
func (s *script) resource(word string) Record {
	word, refused := strings.CutPrefix(word, "-")
	word, secured := strings.CutSuffix(word, "+tls")
	word, size, sized := strings.Cut(word, "*")
	name, age, _ := strings.Cut(word, "@")
	r := resource(name, s.now.Add(s.duration(cmp.Or(age, "0s"))))
	r.Refused, r.Secured = refused, secured
	switch {
	case refused:
		r.Resource = nil
	case sized:
		r.Resource = make([]byte, s.number(size))
	}
	return r
}

func (s *script) load() string {
	records, old, err := s.c.Load(s.now)
	if err != nil {
		return s.said(err, strings.Repeat(" and records", len(records)))
	}
	var words []string
	for _, r := range records {
		word := r.Name
		if age := r.Time.Sub(s.now); age != 0 {
			word += "@" + age.String()
		}
		if r.Refused {
			word = "-" + word
		} else if got := string(r.Resource); got != "resource "+r.Name {
			word += fmt.Sprint("*", len(got))
		}
		if r.Secured {
			word += "+tls"
		}
		want := s.resource(word)
		want.Resource, r.Resource = nil, nil // of which the word has all
		xdstest.Equal(s.t, "record", want, r)
		if words = append(words, word); len(words) == 10 {
			return fmt.Sprintf("%d records", len(records))
		}
	}
	return strings.Join(append(words, strings.Repeat("and one too old", old)), " ")
}

func (s *script) write(words []string, refused bool) string {
	var list []Record
	for _, word := range words {
		n, word, several := strings.Cut(word, "x:")
		if !several {
			n, word = "1", n
		}
		for range s.number(n) {
			list = append(list, s.resource(word))
		}
	}
	omitted, err := s.c.Write(list, refused, s.now)
	if err != nil {
		return s.said(err, "")
	}
	return strings.Repeat(fmt.Sprintf("%d left out", omitted), min(omitted, 1))
}

var temporary = regexp.MustCompile(`\.\d+\.tmp`)

// said is an error without what differs from run to run.
func (s *script) said(err error, more string) string {
	return temporary.ReplaceAllString(strings.NewReplacer(s.c.base(), "OWN", s.dir, "DIR").Replace(err.Error()+more), ".N.tmp")
}

func (s *script) content() []byte {
	b, err := os.ReadFile(s.c.Path())
	xdstest.NoError(s.t, err)
	return b
}

func (s *script) put(b []byte) { xdstest.NoError(s.t, os.WriteFile(s.c.Path(), b, 0o600)) }

// sealed is a file with a text, in quotes, so often as the next word says. "head" is the header of this program.
func (s *script) sealed(words []string) []byte {
	var body strings.Builder
	for i, word := range words {
		if word == "head" {
			_, err := protodelim.MarshalTo(&body, &cachepb.Header{Program: fingerprint})
			xdstest.NoError(s.t, err)
		}
		if text, err := strconv.Unquote(word); err == nil {
			body.WriteString(strings.Repeat(text, s.number(append(words, "1")[i+1])))
		}
	}
	return sealed(body.String())
}

func (s *script) path(name string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(name, "OWN", filepath.Base(s.c.base())))
}

// make makes a file or a directory of some age.
func (s *script) make(dir bool, name string, age time.Duration) {
	if dir {
		xdstest.NoError(s.t, os.MkdirAll(s.path(name), 0o700))
	} else {
		xdstest.NoError(s.t, os.WriteFile(s.path(name), []byte("1\n"), 0o600))
	}
	xdstest.NoError(s.t, os.Chtimes(s.path(name), s.now.Add(-age), s.now.Add(-age)))
}

// files has the names of the files, of many the last, and those that are empty, for others to read, or a mark.
func (s *script) files() string {
	list, err := os.ReadDir(s.dir)
	xdstest.NoError(s.t, err)
	var names []string
	for _, e := range list {
		info, err := e.Info()
		xdstest.NoError(s.t, err)
		name := strings.ReplaceAll(e.Name(), filepath.Base(s.c.base()), "OWN")
		if name == "OWN.tls" && !e.IsDir() {
			b, err := os.ReadFile(s.c.mark())
			xdstest.NoError(s.t, err)
			nanos, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			name += " since " + time.Unix(0, nanos).Sub(s.began).String() + strings.Repeat(" (old)", max(0, min(1, int(s.now.Sub(info.ModTime())/time.Hour))))
		}
		if info.Mode().IsRegular() && info.Size() == 0 {
			name += " (empty)"
		}
		if strings.HasSuffix(name, ".resources") && info.Mode() != 0o600 {
			name += " " + info.Mode().String()
		}
		names = append(names, name)
	}
	if n := len(names); n > 10 {
		return fmt.Sprintf("%d files, the last %s", n, strings.Join(names[n-3:], ", "))
	}
	return strings.Join(names, ", ")
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	xdstest.NoError(s.t, err)
	return n
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	xdstest.NoError(s.t, err)
	return d
}
