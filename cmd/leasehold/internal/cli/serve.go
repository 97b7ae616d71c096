package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/storeurl"
	"github.com/leasehold-go/leasehold/leaseholdaudit"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/spf13/cobra"
)

// serveFlags are the flags of `leasehold serve`.
type serveFlags struct {
	*global
	listen   string
	authFile string
	cert     string
	key      string
	clientCA string
	insecure bool
	hosts    []string
	drain    duration
	delay    duration // before the drain
	level    string
	ui       string

	operation operationFlags
	limits    func() []server.Option
	auditLog  string
}

func newServe(g *global) *cobra.Command {
	f := &serveFlags{global: g}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve the locks of a store over HTTP, for programs in any language",
		Long: strings.TrimSpace(`
Serve answers HTTP requests for locks until it gets TERM or INT. All state of locks is
in the store: several services may serve one store, and a service that is restarted
loses no lock. Its interface is described at /openapi.json.

On TERM or INT it drains: /readyz reports that it is not ready, waiting requests are
answered, and running operations have --drain to finish. With --drain-delay it serves
for that time after /readyz has changed, so that balancers can react. On HUP it reads
the files of --auth-file and --tls-cert again, also during a drain.

Under systemd it serves the sockets of its socket unit instead of --listen, and
reports when it serves and when it drains (Type=notify).

At / is a page for people, with the holders and waiters of each lock. It shows what
the rights of its user allow. With --ui=full it also offers to break leases. This is
the default if clients are authenticated; otherwise the default is read.

Spans of requests are sent to the collector of OTEL_EXPORTER_OTLP_ENDPOINT, or of
another standard variable of OpenTelemetry.

Without --auth-file and --tls-client-ca every client has all rights, and the service
listens on the loopback interface only, unless --insecure permits other interfaces. It
then answers only requests that name it as localhost, by an IP address, or by a name
of --allowed-host, because a web page can make any other name lead here.
`),
		Example: `  leasehold serve
  leasehold serve --store redis://db1:6379 --listen :8443 --auth-file auth.json \
    --tls-cert cert.pem --tls-key key.pem
  curl -d '{"leaseId":"a1","waitMs":10000}' http://127.0.0.1:8080/v1/locks/orders%2F42`,
		Args: exactly(0, "flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.ErrOrStderr(), cmd.Flags().Changed("listen"))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "`HOST:PORT` to serve; an empty host is every interface")
	flags.StringVar(&f.authFile, "auth-file", "", "`FILE` with the rights of clients, by bearer tokens or certificates")
	flags.StringVar(&f.cert, "tls-cert", "", "`FILE` of the certificate, in PEM")
	flags.StringVar(&f.key, "tls-key", "", "`FILE` of its private key")
	flags.StringVar(&f.clientCA, "tls-client-ca", "", "`FILE` of the authorities that sign clients' certificates")
	flags.BoolVar(&f.insecure, "insecure", false, "listen on other interfaces than loopback without authentication")
	flags.StringArrayVar(&f.hosts, "allowed-host", nil, "`NAME` of the service, besides localhost and IP addresses, for requests without authentication; may be repeated")
	flags.StringVar(&f.auditLog, "audit-log", "", "append the holder, times and end of each lease to `FILE`, as lines of JSON; HUP opens it again")
	flags.Var(&f.delay, "drain-delay", "time between not ready at /readyz and the drain, in which requests are served as before")
	durationVar(flags, &f.drain, "drain", 30*time.Second, "time for running operations to finish at the end of the service")
	flags.StringVar(&f.level, "log", "info", "least level of the log, `debug|info|warn|error`; requests have info")
	flags.StringVar(&f.ui, "ui", "", "functions of the page at /, `off|read|full` (default: full if clients are authenticated, otherwise read)")
	f.operation.register(flags)
	f.limits = limitFlags(flags)
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	return cmd
}

// logger returns a logger to standard error, in text or, with --json, as JSON. It never
// blocks; flush waits a short time for the records that are not yet written, and ends it.
func (f *serveFlags) logger(w io.Writer) (_ *slog.Logger, flush func(), err error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, nil, usage("--log %q is none of debug, info, warn, error", f.level)
	}
	to := func(w io.Writer) *slog.Logger {
		opts := &slog.HandlerOptions{Level: level}
		if f.json {
			return slog.New(slog.NewJSONHandler(w, opts))
		}
		return slog.New(slog.NewTextHandler(w, opts))
	}
	direct := to(w)
	q := &lines{w: w, max: maxRecords, note: func(dropped int) {
		direct.Error("log records dropped, because standard error was not read", "count", dropped)
	}}
	return to(q), func() { q.soon("") }, nil
}

// page returns the mode of the web page. Without authentication the service cannot record the
// name of a user who breaks a lease, so that the operator must allow this explicitly.
func (f *serveFlags) page() (server.PageMode, error) {
	mode, ok := map[string]server.PageMode{"off": server.PageOff, "read": server.PageRead, "full": server.PageFull, "": server.PageRead}[f.ui]
	if !ok {
		return 0, usage("--ui %q is none of off, read, full", f.ui)
	}
	if f.ui == "" && f.authFile+f.clientCA != "" {
		mode = server.PageFull
	}
	return mode, nil
}

// files are the files that SIGHUP reloads.
type files struct {
	auth  *auth.File
	tls   *auth.TLS
	audit *leaseholdaudit.File
}

// reload reads all files, and enforces them only if all are valid: the message that the old
// files stay in force must be true for each of them.
func (f *files) reload() error {
	var all []func()
	var errs []error
	read := func(enforce func(), err error) { all, errs = append(all, enforce), append(errs, err) }
	if f.auth != nil {
		read(f.auth.Read())
	}
	if f.tls != nil {
		read(f.tls.Read())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if f.audit != nil {
		if err := f.audit.Reopen(); err != nil {
			return err
		}
	}
	for _, enforce := range all {
		enforce()
	}
	return nil
}

// follow reloads the files at each hangup, until stop is called.
func (f *files) follow(hangups <-chan os.Signal, log *slog.Logger) (stop func()) {
	over := make(chan struct{})
	var following sync.WaitGroup
	following.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-hangups:
			}
			if err := f.reload(); err != nil {
				log.Error("files not read again; the earlier content stays in force", "error", err)
			} else {
				log.Info("files read again")
			}
		}
	})
	return func() {
		close(over)
		following.Wait()
	}
}

func (f *files) config() *tls.Config {
	if f.tls == nil {
		return nil
	}
	return f.tls.Config()
}

// open reads the files of authorization and TLS. exposed lists the addresses that other
// machines can reach.
func (f *serveFlags) open(exposed []string) (all files, opts []server.Option, err error) {
	if f.cert != "" {
		if all.tls, err = auth.OpenTLS(f.cert, f.key, f.clientCA); err != nil {
			return all, nil, usage("%w", err)
		}
	}
	switch {
	case f.clientCA != "" && all.tls == nil:
		return all, nil, usage("--tls-client-ca goes with --tls-cert and --tls-key")
	case f.authFile != "":
		if all.auth, err = auth.OpenFile(f.authFile); err != nil {
			return all, nil, usage("%w", err)
		}
		opts = append(opts, server.WithAuthenticator(all.auth))
	case f.clientCA != "":
		opts = append(opts, server.WithAuthenticator(auth.AnyCertificate()))
	case !f.insecure && len(exposed) > 0:
		return all, nil, usage("%s can be reached from other machines without authentication; give --auth-file or --tls-client-ca, or --insecure if that is intended", exposed[0])
	}
	return all, opts, nil
}

// checkListen checks the form of an address.
func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return usage("--listen %q is not an address such as 127.0.0.1:8080, or :8080 for every interface", address)
	}
	return nil
}

// unlistened describes why listening on an address failed.
func unlistened(err error) error {
	advice := "--listen gives another address"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "another program listens there, perhaps another leasehold; " + advice
	case errors.Is(err, syscall.EACCES):
		advice = "this user may not listen there; " + advice
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "this machine does not have that address; " + advice
	}
	return &exitError{code: codeUnavailable, err: &advised{fmt.Errorf("serve: %w", err), advice}}
}

// loopback reports whether an address can be reached from this machine only.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, ipErr := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || ipErr == nil && ip.IsLoopback())
}

func (f *serveFlags) run(ctx context.Context, stderr io.Writer, listenGiven bool) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // until the process ends: logs may be rotated at any time, and HUP would end the process by default
	log, flush, err := f.logger(stderr)
	if err != nil {
		return err
	}
	defer flush()
	if err := checkListen(f.listen); err != nil {
		return err
	}
	sockets, err := f.activated(listenGiven)
	if err != nil {
		return err
	}
	defer closeAll(sockets)
	exposed := f.exposed(sockets)
	all, opts, err := f.open(exposed)
	if err != nil {
		return err
	}
	if f.authFile != "" && f.cert == "" && len(exposed) > 0 {
		log.Warn("tokens are sent in the clear, unless something in front of the service encrypts them; see --tls-cert", "listen", exposed[0])
	}
	mode, err := f.page()
	if err != nil {
		return err
	}
	operation, err := f.operation.options()
	if err != nil {
		return err
	}
	tracing, sent, err := traces(log)
	if err != nil {
		return err
	}
	defer sent()
	opts = append(append(append(opts, f.limits()...), operation...), tracing...)
	if f.auditLog != "" {
		if all.audit, err = leaseholdaudit.Open(f.auditLog); err != nil {
			return usage("--audit-log: %w", err)
		}
		defer all.audit.Close() // after the service has ended
		opts = append(opts, server.WithAuditLog(all.audit))
	}
	defer all.follow(hangups, log)() // to the service's end: it may still write to a file
	opts = append(opts, server.WithAllowedHosts(f.hosts...), server.WithLogger(log), server.WithObserver(server.LogRequests(log)), server.WithPage(mode))
	s, err := f.service(opts)
	if err != nil {
		return err
	}
	defer s.Close()
	if len(sockets) == 0 {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
		if err != nil {
			return unlistened(err)
		}
		sockets = []net.Listener{listener}
	}
	return f.until(s, sockets, &all, log)
}

// service opens the store and returns the service over it.
func (f *serveFlags) service(opts []server.Option) (*server.Server, error) {
	rawURL, err := f.servedURL()
	if err != nil {
		return nil, err
	}
	var quorum driver.Driver
	if f.operation.quorum != "" {
		if quorum, err = stores.Open(f.operation.quorum); err != nil {
			return nil, err
		}
		opts = append(opts, server.WithQuorum(quorum))
	}
	opts = append(opts, server.WithStoreName(storeurl.Redact(rawURL)))
	store, err := stores.Open(rawURL)
	if err == nil {
		var s *server.Server
		if s, err = server.New(store, opts...); err == nil {
			return s, nil
		}
		_ = store.Close() // only the first error is reported
	}
	if quorum != nil {
		_ = quorum.Close()
	}
	return nil, err
}

// until serves until a signal arrives, and then drains.
func (f *serveFlags) until(s *server.Server, sockets []net.Listener, all *files, log *slog.Logger) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	scheme := "http"
	if all.tls != nil {
		scheme = "https"
	}
	ended := make(chan error, 1)
	go func() { ended <- serveAll(s, sockets, all) }()
	for _, l := range sockets {
		log.Info("serving", "url", urlOf(scheme, l.Addr()), "store", storeurl.Redact(f.used))
	}
	notify(log, daemon.SdNotifyReady)
	var sig os.Signal
	select {
	case err := <-ended:
		return failed(err)
	case sig = <-signals:
	}
	signal.Stop(signals) // a second signal has its default action
	notify(log, daemon.SdNotifyStopping)
	log.Info("draining", "signal", sig.String(), "delay", time.Duration(f.delay).String(), "limit", time.Duration(f.drain).String())
	if err := f.leave(s, ended); err != nil {
		return err
	}
	return f.end(s, ended, log)
}

// failed returns the error of a service that ended without a signal.
func failed(err error) error {
	return &exitError{code: codeInternal, err: fmt.Errorf("serve: %w", err)}
}

// leave makes the service report that it is not ready, and serves for --drain-delay.
func (f *serveFlags) leave(s *server.Server, ended <-chan error) error {
	if f.delay == 0 {
		return nil
	}
	s.Leave()
	select {
	case err := <-ended:
		return failed(err)
	case <-time.After(time.Duration(f.delay)):
		return nil
	}
}

// end drains the service. It ends operations that take too long; their locks are released.
func (f *serveFlags) end(s *server.Server, ended <-chan error, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(noContext, time.Duration(f.drain))
	defer cancel()
	err := s.Shutdown(ctx)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("not everything ended in time; the rest was cut short", "limit", time.Duration(f.drain).String())
		err = nil
	}
	log.Info("ended")
	return err
}
