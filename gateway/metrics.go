package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics reads the gateway's counters when it is asked; nothing is counted twice.
type metrics struct {
	s *Server

	handshakes, slotsUsed, slotsBound, resumed, duplicates, reaped *prometheus.Desc
	workloads, ranks, dropped, admitting, schedulerOK, tickAge     *prometheus.Desc
}

func newMetrics(s *Server) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("openai4s_"+name, help, labels, nil)
	}
	return &metrics{
		s:           s,
		handshakes:  desc("handshakes_total", "Dial-ins by result; refusals by cause.", "result", "cause"),
		slotsUsed:   desc("handshake_slots_in_use", "Pending handshakes."),
		slotsBound:  desc("handshake_slots_bound", "The bound on pending handshakes."),
		resumed:     desc("ranks_resumed_total", "Connections that brought a rank back."),
		duplicates:  desc("duplicate_ranks_total", "Registrations of a rank that was there already."),
		reaped:      desc("ranks_lost_total", "Ranks given up as lost."),
		workloads:   desc("workloads", "Live workloads by phase.", "phase"),
		ranks:       desc("ranks_connected", "Ranks with a connection."),
		dropped:     desc("log_dropped_bytes_total", "Bytes of output that no copy was kept of."),
		admitting:   desc("admitting", "1 while ranks can be admitted, 0 while the fence is unhealthy."),
		schedulerOK: desc("scheduler_answers", "1 if the scheduler answered the last time it was asked, 0 if not."),
		tickAge:     desc("scheduler_asked_seconds", "Seconds since the scheduler was last asked."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	h := m.s.counters.snapshot(m.s.slots)
	count(m.handshakes, float64(h.Accepted), "accepted", "")
	count(m.handshakes, float64(h.RefusedBusy), "busy", "")
	count(m.handshakes, float64(h.RefusedSource), "source", "")
	count(m.handshakes, float64(h.Evicted), "evicted", "")
	count(m.handshakes, float64(h.TimedOut), "timeout", "")
	for cause, n := range h.Rejected {
		count(m.handshakes, float64(n), "refused", cause)
	}
	gauge(m.slotsUsed, float64(h.InUse))
	gauge(m.slotsBound, float64(h.Bound))
	count(m.resumed, float64(h.Resumed))
	count(m.duplicates, float64(h.DuplicateRank))
	count(m.reaped, float64(h.Reaped))
	count(m.dropped, float64(m.s.logBytes.dropped.Load()))

	phases := map[string]int{}
	ranks := 0
	for _, l := range m.s.all() {
		l.mu.Lock()
		phases[string(l.rec.Phase)]++
		ranks += l.gang.Live()
		l.mu.Unlock()
	}
	for phase, n := range phases {
		gauge(m.workloads, float64(n), phase)
	}
	gauge(m.ranks, float64(ranks))
	gauge(m.admitting, asNumber(m.s.fence.Healthy() == nil))
	if t := m.s.observed.Load(); t != nil {
		gauge(m.schedulerOK, asNumber(t.err == nil))
		gauge(m.tickAge, m.s.now().Sub(t.at).Seconds())
	}
}

func asNumber(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// ServeMetrics serves /metrics and /healthz until ctx ends. /healthz is 503 while nothing can be admitted.
func (s *Server) ServeMetrics(ctx context.Context, ln net.Listener) error {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{newMetrics(s), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.fence.Healthy(); err != nil {
			http.Error(w, clean(err.Error()), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return nil
}
