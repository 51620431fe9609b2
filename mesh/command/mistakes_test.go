package command

import (
	"bufio"
	"cmp"
	"context"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/xds"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/observe/csds"
)

// mistake is a case of testdata/mistakes.txt.
type mistake struct {
	name string
	// files have their paths in front; commands are lines of a shell, without quotes.
	files    [][2]string
	commands []string
	// causes and fixes are parts of what the commands print; those in once are not repeated. not says why that does not lead to the fix,
	// if it does not.
	causes, fixes, once []string
	not                 string
}

const (
	// mistakesInAll is how many mistakes the script has, and mistakesLeading how many at least lead to the fix.
	mistakesInAll, mistakesLeading = 49, 46
)

// Mistakes of people lead to the fix: the program, or a command, names the cause with its place, and the way out. With -v, the
// test shows what is printed.
func TestMistakes(t *testing.T) {
	t.Parallel()
	all := runMistakes(t, "testdata/mistakes.txt")
	leading := 0
	for _, m := range all {
		if m.not == "" {
			leading++
			if len(m.fixes) == 0 {
				t.Errorf("%s: the script names no fix", m.name)
			}
		}
	}
	if len(all) != mistakesInAll || leading < mistakesLeading {
		t.Errorf("%d of %d mistakes lead to the fix, want %d of %d", leading, len(all), mistakesLeading, mistakesInAll)
	}
}

// What else commands that ask servers print is in testdata/servers.txt.
func TestServers(t *testing.T) {
	t.Parallel()
	runMistakes(t, "testdata/servers.txt")
}

// page is "From symptom to command", whose sections and rows are cases of testdata/symptoms.txt: they lead to the cause, in two
// commands at most.
func page(t *testing.T) string { return golden.Read(t, root+"/docs/tasks/debugging.md") }

func TestSymptoms(t *testing.T) {
	t.Parallel()
	tested := make(map[string]bool)
	for _, m := range runMistakes(t, "testdata/symptoms.txt") {
		tested[m.name] = true
	}
	has := func(name string) {
		if !tested[name] {
			t.Errorf("no test has %q", name)
		}
		delete(tested, name)
	}
	for _, section := range strings.Split(page(t), "\n## ")[1:] {
		if title, _, _ := strings.Cut(section, "\n"); len(commandsOf(t, title)) > 0 {
			has(title)
		}
		_, table, _ := strings.Cut(section, "| --- | --- |\n")
		for line := range strings.Lines(table) {
			row, found := strings.CutPrefix(line, "| ")
			if !found {
				break
			}
			row, _, _ = strings.Cut(row, " | ")
			has(row)
		}
	}
	if len(tested) > 0 {
		t.Errorf("the page does not have %v", tested)
	}
}

// places are what a case has in the places of the mesh of the page.
var places = strings.NewReplacer("127.0.0.1:18113", "{client}", "127.0.0.1:18002", "{serve-admin}", "xds:///backend", "xds:///shop",
	"/grpc.health.v1.Health/Check", "/grpc.testing.TestService/EmptyCall", "bin/debug", "mesh", "examples/mesh/config", "{example}")

// commandsOf returns the calls of dynxds in a section of the page, without what they are piped to.
func commandsOf(t *testing.T, title string) (calls []string) {
	t.Helper()
	_, section, _ := strings.Cut(page(t), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if call, ok := strings.CutPrefix(line, "$ bin/"); ok {
			call, _, _ = strings.Cut(strings.TrimSuffix(call, "\n"), " | ")
			calls = append(calls, places.Replace(call))
		}
	}
	if len(calls) > 2 {
		t.Errorf("the section %q has %d commands, want two at most", title, len(calls))
	}
	return calls
}

// runMistakes runs the cases of a script.
func runMistakes(t *testing.T, script string) []*mistake {
	t.Helper()
	all := readMistakes(t, script)
	certs := sync.OnceValue(func() string { return makeCerts(t) })
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w := &mistaken{t: t, dir: t.TempDir(), certs: certs, worlds: worlds, values: make(map[string]string)}
			for _, file := range m.files {
				folder, name := filepath.Split(file[0])
				folder = filepath.Join(w.dir, folder)
				xdstest.NoError(t, os.MkdirAll(folder, 0o700))
				if name != "" {
					xdstest.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(w.expand(file[1])), 0o600))
				}
			}
			// What a program says of itself may take a moment.
			cmdtest.Await(t, func() (missing string) {
				printed := ""
				for _, line := range m.commands {
					printed += w.run(w.expand(line))
				}
				for _, text := range slices.Concat(m.causes, m.fixes, m.once) {
					if !strings.Contains(printed, w.expand(text)) {
						return fmt.Sprintf("%s\nprint nothing with %q:\n%s", strings.Join(m.commands, "\n"), text, printed)
					}
				}
				for _, text := range m.once {
					xdstest.Equal(t, "how often this is printed: "+text, 1, strings.Count(printed, w.expand(text)))
				}
				t.Logf("%s\n%s", strings.Join(m.commands, "\n"), printed)
				return ""
			})
			if m.not == "" && len(m.causes)+len(m.once) == 0 {
				t.Error("the script names no cause")
			}
		})
	}
	return all
}

// readMistakes reads the script, whose head says what the lines mean.
func readMistakes(t *testing.T, script string) (all []*mistake) {
	t.Helper()
	var m *mistake
	inFile := false
	for line := range strings.Lines(golden.Read(t, script)) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case kind == "==":
			m, inFile = &mistake{name: rest}, false
			all = append(all, m)
		case m == nil: // the head
		case kind == "--":
			m.files, inFile = append(m.files, [2]string{strings.TrimSuffix(rest, " --"), ""}), true
		case kind == "$" && rest == "page":
			m.commands, inFile = append(m.commands, commandsOf(t, m.name)...), false
		case kind == "$":
			m.commands, inFile = append(m.commands, rest), false
		case inFile:
			m.files[len(m.files)-1][1] += line
		case kind == "cause:":
			m.causes = append(m.causes, rest)
		case kind == "fix:":
			m.fixes = append(m.fixes, rest)
		case kind == "once:":
			m.once = append(m.once, rest)
		case kind == "not:":
			m.not = rest
		case kind != "":
			t.Fatalf("%s: %q has the line %q", script, m.name, line)
		}
	}
	return all
}

// mistaken is the world of a mistake: its folder, and the servers that its text names.
type mistaken struct {
	t      *testing.T
	dir    string
	certs  func() string
	worlds map[string]func(*mistaken) string
	values map[string]string
}

var inBraces = regexp.MustCompile(`\{[a-z-]+\}`)

// expand replaces names in braces by what they stand for.
func (w *mistaken) expand(text string) string {
	return inBraces.ReplaceAllStringFunc(text, func(name string) string {
		if world, ok := w.worlds[strings.Trim(name, "{}")]; ok && w.values[name] == "" {
			w.values[name] = world(w)
		}
		return cmp.Or(w.values[name], name)
	})
}

// run runs a line as a process of its own, and returns all that it prints, and its exit status. Behind "^C" stands the text of a line at
// which it is interrupted.
func (w *mistaken) run(line string) (printed string) {
	w.t.Helper()
	line, until, interrupt := strings.Cut(line, " ^C ")
	line, quiet := strings.CutSuffix(line, " 2>/dev/null")
	words := arguments(line)
	environment := []string{"GRPC_XDS_BOOTSTRAP=", "GRPC_XDS_BOOTSTRAP_CONFIG="}
	for strings.Contains(words[0], "=") {
		environment, words = append(environment, words[0]), words[1:]
	}
	cmd := command(w.t, words[1:]...)
	switch words[0] {
	case "dynxds":
	case "get":
		return cmdtest.Get(w.t, words[1])
	case "program":
		environment = append(environment, runAsProgram+"=1")
	default:
		w.t.Fatalf("%q is no command of the script", words[0])
	}
	cmd.Dir, cmd.Env = w.dir, append(cmd.Env, environment...)
	out, err := cmd.StdoutPipe()
	xdstest.NoError(w.t, err)
	if !quiet {
		cmd.Stderr = cmd.Stdout
	}
	xdstest.NoError(w.t, cmd.Start())
	for text := bufio.NewReader(out); err == nil; {
		line, err = text.ReadString('\n')
		if printed += line; interrupt && strings.Contains(line, until) {
			interrupt = false
			xdstest.NoError(w.t, cmd.Process.Signal(os.Interrupt))
		}
	}
	_ = cmd.Wait() // the exit status is printed
	return fmt.Sprintf("%sexit status %d\n", printed, cmd.ProcessState.ExitCode())
}

// makeCerts returns a folder with the authority ca.pem, a certificate of it for localhost and spiffe://mesh/backend, cert.pem with
// key.pem, one that has expired, the key of another one, and another authority.
func makeCerts(t *testing.T) (dir string) {
	t.Helper()
	ca, dir := testca.New(t), t.TempDir()
	cert, key := ca.Sign(&x509.Certificate{DNSNames: []string{"localhost"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "mesh", Path: "/backend"}}})
	expired, expiredKey := ca.Sign(testca.Expired())
	_, otherKey := ca.Leaf()
	for name, text := range map[string][]byte{
		"ca.pem": ca.PEM(), "cert.pem": cert, "key.pem": key, "expired.pem": expired, "expired-key.pem": expiredKey, "other-key.pem": otherKey,
		"other-ca.pem": testca.New(t).PEM(),
	} {
		xdstest.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

// runAsProgram makes the test binary the program of a user.
const runAsProgram = "DYNXDS_TEST_RUN_AS_PROGRAM"

// program is a client as people write it: it makes one RPC, and prints the error. With -csds it makes RPCs until it is killed.
func program(args []string, out io.Writer) error {
	f := flag.NewFlagSet("program", flag.ContinueOnError)
	ca := f.String("tls", "", "use TLS, and trust this authority")
	managed := f.Bool("xds", false, "leave security to the control plane")
	noImport := f.Bool("no-import", false, "be a program without dynxds")
	authority := f.String("authority", "", "the authority of the RPC")
	asked := f.Bool("csds", false, "serve CSDS, and print only the address")
	if err := f.Parse(args); err != nil {
		return err
	}
	target := f.Arg(0)
	if *noImport {
		target = "dns:///" + target // as gRPC does with a scheme that nobody has registered
	}
	creds := insecure.NewCredentials()
	if *ca != "" {
		pem, err := os.ReadFile(*ca)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		creds = credentials.NewClientTLSFromCert(pool, "localhost")
	}
	if *managed {
		var err error
		if creds, err = xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: creds}); err != nil {
			return err
		}
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
	if *authority != "" {
		opts = append(opts, grpc.WithAuthority(*authority))
	}
	cc, err := grpc.NewClient(target, opts...)
	if err != nil {
		return err
	}
	defer cc.Close()
	call := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, new(testgrpc.Empty))
		return err
	}
	if *asked {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s := grpc.NewServer()
		if err := csds.Register(s); err != nil {
			return err
		}
		go func() {
			for range time.Tick(50 * time.Millisecond) {
				_ = call() // the error may be the symptom
			}
		}()
		fmt.Fprintln(out, l.Addr())
		return s.Serve(l)
	}
	if err := call(); err != nil {
		return err
	}
	fmt.Fprintln(out, "the RPC ended with OK")
	return nil
}

// arguments splits a line as a shell does.
func arguments(line string) (args []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	return args
}

// mainProgram runs program, and exits.
func mainProgram() {
	if err := program(os.Args[1:], os.Stdout); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}
