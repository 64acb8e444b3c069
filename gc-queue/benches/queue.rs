//! `cargo bench -p gc-queue`: time, items a second and allocations of the work that is also compared with client-go's
//! queue by `cargo xtask bench --rows queue`.

use divan::AllocProfiler;
use divan::counter::ItemsCount;

mod work;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn run(bencher: divan::Bencher<'_, '_>, items: u64, work: impl Fn() -> u64 + Sync) {
    bencher.counter(ItemsCount::new(items)).bench(work);
}

#[divan::bench(args = work::ALL.map(|(name, _)| name), sample_count = 5, sample_size = 1)]
fn queue(bencher: divan::Bencher<'_, '_>, name: &str) {
    let Some((_, work)) = work::ALL.into_iter().find(|(other, _)| *other == name) else { return };
    let is_delayed = matches!(name, "rate-limited" | "after");
    run(bencher, if is_delayed { work::DELAYED } else { work::MILLION }, || work(true));
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn core_alone(bencher: divan::Bencher<'_, '_>) {
    run(bencher, work::MILLION, work::core_alone);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn core_million(bencher: divan::Bencher<'_, '_>) {
    run(bencher, work::MILLION, work::core_fill_and_drain);
}
